"""The search box of every page: finds what has an identifier or a name."""

from starlette.responses import RedirectResponse, Response

from petstore_server.console.lists import account_path, query_link
from petstore_server.console.visit import RefusedRequest, Visit
from petstore_server.domain.audit import AuditFilters
from petstore_server.domain.errors import NotFound
from petstore_server.domain.orders import is_int64
from petstore_server.domain.texts import looks_like_key
from petstore_server.operations.admin_port import CONSOLE_PATH


async def search(visit: Visit) -> Response:
    """Go to the order, key, import, account or request with this identifier or name; else list accounts with it."""
    text = visit.query.get("q", "").strip()
    if looks_like_key(text):
        message = "This is an API key. Search for its id, which begins with key_, and revoke it if it was made public."
        raise RefusedRequest(400, "Not searched", message)
    return RedirectResponse(CONSOLE_PATH + await _found(visit, text), 303)


async def _found(visit: Visit, text: str) -> str:
    if is_int64(text):
        return f"/orders/{text}"
    if text.startswith("key_"):
        return f"/keys/{text}"
    if text.startswith("import-"):
        return "/audit" + query_link({"subject": text})
    try:
        return account_path((await visit.need(visit.store.accounts.find(text))).name)
    except NotFound:
        requests = await visit.need(visit.store.audit.page(AuditFilters(request_id=text), 1))
        if requests.entries:
            return "/audit" + query_link({"request": text})
        return "/accounts" + query_link({"search": text})
