"""Keys: create, rotate and revoke them, list and lift their bans."""

from starlette.responses import RedirectResponse, Response

from petstore_server.console.forms import account_path, query_link
from petstore_server.console.pages.accounts import show_account
from petstore_server.console.visit import Visit
from petstore_server.domain import keys as transitions
from petstore_server.domain.audit import unless_changed
from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.keys import Environment, Scope, parse_scopes
from petstore_server.domain.texts import check_note
from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.operations import accounts as operations
from petstore_server.operations.admin_port import CONSOLE_PATH

_BANS_PAGE = 50
_GRACES = {"0s": 0, "1h": HOUR, "24h": DAY, "7d": 7 * DAY, "30d": 30 * DAY}  # seconds


async def create(visit: Visit) -> Response:
    """Create a key and show it, once."""
    form = await visit.form("key-")
    account = await visit.need(visit.store.accounts.find(visit.request.path_params["name"]))
    form.values["scopes"] = " ".join(form.all("scope"))
    scopes = form.read("scopes", _scopes)
    expires = form.read("expires", lambda text: visit.when(text, past=False))
    note = form.read("note", check_note)
    if not form.errors and scopes is not None and note is not None:
        try:
            issued = await operations.issue_key(
                visit.store,
                account.name,
                environment=Environment(visit.sources.settings.environment),
                scopes=scopes,
                expires_at=expires.timestamp() if expires else None,
                note=note,
                actor=visit.actor,
            )
            return visit.page("secret.html", issued=issued)
        except InvalidInput as error:
            form.errors["expires"] = str(error)
    return await show_account(visit, account, key_form=form, status=400)


async def show(visit: Visit) -> Response:
    """Go to the page of the key's account."""
    key = await visit.need(visit.store.keys.find(visit.request.path_params["key"]))
    return RedirectResponse(f"{CONSOLE_PATH}{account_path(key.account)}{query_link({}, key=key.id)}#keys", 303)


async def rotate(visit: Visit) -> Response:
    """Replace a key and show its successor, once."""
    submitted = await visit.form()
    key_id, grace = visit.request.path_params["key"], submitted["grace"] or "24h"
    if grace not in _GRACES:
        raise InvalidInput("Choose when the old key ends.")
    if grace == "0s" and not submitted["confirmed"]:
        return visit.page("rotate.html", key=await visit.need(visit.store.keys.find(key_id)))
    issued = await operations.rotate_key(visit.store, key_id, grace=_GRACES[grace], expires_at=None, actor=visit.actor)
    return visit.page("secret.html", issued=issued)


async def ask_revoke(visit: Visit) -> Response:
    """Ask before a key is revoked."""
    return visit.page("revoke.html", key=await visit.need(visit.store.keys.find(visit.request.path_params["key"])))


async def revoke(visit: Visit) -> Response:
    """Revoke a key, unless it was changed meanwhile."""
    submitted = await visit.form()
    change = unless_changed(transitions.revoke(visit.now), submitted["seen"])
    key = await visit.store.keys.change(visit.request.path_params["key"], change, visit.actor)
    return visit.done(account_path(key.account), f"Revoked {key.id}.")


async def list_bans(visit: Visit) -> Response:
    """The banned keys, those whose ban ends last first, page by page."""
    form = visit.filters("name")
    page = await visit.need(visit.store.keys.banned(visit.now, _BANS_PAGE, visit.page_number, name=form.values["name"]))
    return visit.page("bans.html", form=form, page=page)


async def lift_ban(visit: Visit) -> Response:
    """Lift the ban of a key."""
    await visit.form()
    key = await visit.store.keys.change(visit.request.path_params["key"], transitions.unban(visit.now), visit.actor)
    return visit.done(account_path(key.account), f"Lifted the ban of {key.id}; it works again within a second.")


def _scopes(text: str) -> frozenset[Scope]:
    scopes = parse_scopes(text)
    if not scopes:
        raise InvalidInput("Choose at least one.")
    return scopes
