"""Keys: find, show, create, rotate and revoke them, list and lift their bans."""

from starlette.responses import Response

from petstore_server.console.forms import account_path
from petstore_server.console.pages.accounts import show as show_account
from petstore_server.console.rendering import plural
from petstore_server.console.visit import Visit
from petstore_server.domain import keys as transitions
from petstore_server.domain.errors import Conflict, InvalidInput, NotFound, ServiceUnavailable, StatementFailed
from petstore_server.domain.keys import VALID, ApiKey, Environment, parse_scopes
from petstore_server.domain.texts import check_note
from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.domain.transitions import unless_changed
from petstore_server.operations import accounts as use_cases

_BANS_PAGE = 50
_MAX_LINES = 6  # of the notice after bans were lifted
_GRACES = {  # of the old key: the seconds and the label of each choice
    "0s": (0, "at once"),
    "1h": (HOUR, "in 1 hour"),
    "24h": (DAY, "in 24 hours"),
    "7d": (7 * DAY, "in 7 days"),
    "30d": (30 * DAY, "in 30 days"),
}


async def create(visit: Visit) -> Response:
    """Create a key and show it, once."""
    form = await visit.form()
    scopes = parse_scopes(" ".join(form.all("scope")))
    if not scopes:
        form.errors["scopes"] = "Choose at least one."
    expires = form.read("expires", lambda text: visit.when(text, past=False))
    note = form.read("note", check_note)
    if not form.errors and note is not None:
        try:
            issued = await use_cases.issue_key(
                visit.store,
                visit.path["name"],
                environment=Environment(visit.sources.settings.environment),
                scopes=scopes,
                expires_at=expires.timestamp() if expires else None,
                note=note,
                actor=visit.actor,
            )
            return visit.page("secret.html", issued=issued)
        except InvalidInput as error:
            form.errors["expires"] = str(error)
    return await show_account(visit, key_form=form, status=400)


async def show(visit: Visit) -> Response:
    key = await _key(visit)
    return visit.page("key.html", key=key, changes=await visit.last_changes(f"key:{key.id}"))


async def ask_rotate(visit: Visit) -> Response:
    key = await _key(visit)
    if obstacle := key.rotation_obstacle(visit.now):
        raise obstacle
    return visit.page("rotate.html", key=key, at_once=False, graces=_GRACES)


async def rotate(visit: Visit) -> Response:
    """Replace a key and show its successor, once."""
    submitted = await visit.form()
    key_id, grace = visit.path["key"], submitted["grace"] or "24h"
    if grace not in _GRACES:
        raise InvalidInput("Choose when the old key ends.")
    if grace == "0s" and not submitted["confirmed"]:
        return visit.page("rotate.html", key=await _key(visit), at_once=True)
    seconds, _ = _GRACES[grace]
    issued = await use_cases.rotate_key(visit.store, key_id, grace=seconds, expires_at=None, actor=visit.actor)
    return visit.page("secret.html", issued=issued)


async def ask_revoke(visit: Visit) -> Response:
    return visit.page("revoke.html", key=await _key(visit))


async def revoke(visit: Visit) -> Response:
    submitted = await visit.form()
    change = unless_changed(transitions.revoke(visit.now), submitted["seen"])
    key = await visit.store.keys.change(visit.path["key"], change, visit.actor)
    if key.revoked_at != visit.now:
        line = f"Nothing was changed: {key.id} was revoked already."
        return visit.redirect_with_notice(account_path(key.account), line, kind="warn")
    return visit.redirect_with_notice(account_path(key.account), f"Revoked {key.id}.")


async def list_bans(visit: Visit) -> Response:
    """The banned keys, those whose ban ends last first, page by page."""
    form = visit.filters("name")
    banned = visit.store.keys.banned(visit.now, _BANS_PAGE, visit.page_number, name=form["name"])
    return visit.page("bans.html", form=form, page=await visit.require(banned))


async def lift_bans(visit: Visit) -> Response:
    form = await visit.form()
    lifted, working, problems = 0, 0, list[str]()
    for key_id in dict.fromkeys(form.all("key")):
        try:
            key = await visit.store.keys.change(key_id, transitions.unban(visit.now), visit.actor)
            lifted += 1
            line, kind = _lifted(visit, key)
            if kind == "ok":
                working += 1
            else:
                problems.append(line)
        except (NotFound, Conflict, StatementFailed) as error:
            problems.append(error.message)
        except ServiceUnavailable as error:
            if not lifted:
                raise
            problems.insert(0, f"{error.explanation} The bans that follow were not lifted.")
            break
    if not lifted and not problems:
        raise InvalidInput("No key is selected; go back and select at least one.")
    done = [f"Lifted {plural(working, 'ban')}; these keys work again within a second."] if working else []
    lines = [*(done if lifted else ["Nothing was changed."]), *problems]
    return visit.redirect_with_notice("/bans", *lines[:_MAX_LINES], kind="warn" if problems else "ok")


async def lift_ban(visit: Visit) -> Response:
    await visit.form()
    key = await visit.store.keys.change(visit.path["key"], transitions.unban(visit.now), visit.actor)
    line, kind = _lifted(visit, key)
    return visit.redirect_with_notice(account_path(key.account), line, kind=kind)


def _lifted(visit: Visit, key: ApiKey) -> tuple[str, str]:
    """The notice for a key whose ban was lifted, and its kind: the key may have ended, or its account be suspended."""
    if (state := key.state(visit.now)) in VALID:
        return f"Lifted the ban of {key.id}; it works again within a second.", "ok"
    return f"Lifted the ban of {key.id}, which still does not work: it is {state}.", "warn"


async def _key(visit: Visit) -> ApiKey:
    return await visit.require(visit.store.keys.find(visit.path["key"]))
