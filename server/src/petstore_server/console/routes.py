"""The pages and the actions of the console, each with the role that it needs."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from starlette.routing import compile_path

from petstore_server.console import access
from petstore_server.console.pages import accounts, audit, imports, keys, orders, overview, webhooks
from petstore_server.console.visit import Handler
from petstore_server.domain.roles import Role

VIEWER, OPERATOR, ADMIN = Role


@dataclass(frozen=True)
class Endpoint:
    """What a method on a path below the console's does. `role` is the one that it needs, None if not even a sign-in."""

    method: Literal["GET", "POST"]
    path: str
    role: Role | None
    handle: Handler

    def __post_init__(self) -> None:
        if not isinstance(self.role, Role | None):
            raise TypeError(f"{self.method} {self.path} has no role; give one of {', '.join(Role)}.")


page, action = partial(Endpoint, "GET"), partial(Endpoint, "POST")

ROUTES = (
    page("/sign-in", None, access.sign_in),
    action("/sign-out", VIEWER, access.sign_out),
    page("/", VIEWER, overview.overview),
    action("/search", VIEWER, overview.search),
    action("/check", VIEWER, overview.check_again),
    page("/accounts", VIEWER, accounts.list_accounts),
    action("/accounts", ADMIN, accounts.create),
    page("/accounts/{name}", VIEWER, accounts.show),
    action("/accounts/{name}/plan", ADMIN, accounts.change_plan),
    action("/accounts/{name}/orders", ADMIN, accounts.change_orders),
    action("/accounts/{name}/details", ADMIN, accounts.edit),
    page("/accounts/{name}/suspend", ADMIN, partial(accounts.ask, "suspend.html")),
    action("/accounts/{name}/suspend", ADMIN, accounts.suspend),
    action("/accounts/{name}/resume", ADMIN, accounts.resume),
    page("/accounts/{name}/close", ADMIN, partial(accounts.ask, "close.html")),
    action("/accounts/{name}/close", ADMIN, accounts.close),
    action("/accounts/{name}/keys", ADMIN, keys.create),
    action("/accounts/{name}/webhooks", ADMIN, webhooks.create),
    page("/webhooks/{webhook}", VIEWER, webhooks.show),
    action("/webhooks/{webhook}/pause", OPERATOR, webhooks.pause),
    action("/webhooks/{webhook}/resume", OPERATOR, webhooks.resume),
    action("/webhooks/{webhook}/replay", OPERATOR, webhooks.replay),
    action("/webhooks/{webhook}/ping", OPERATOR, webhooks.ping),
    page("/webhooks/{webhook}/rotate", ADMIN, partial(webhooks.ask, "webhook_rotate.html")),
    action("/webhooks/{webhook}/rotate", ADMIN, webhooks.rotate),
    page("/webhooks/{webhook}/delete", ADMIN, partial(webhooks.ask, "webhook_delete.html")),
    action("/webhooks/{webhook}/delete", ADMIN, webhooks.delete),
    page("/keys/{key}", VIEWER, keys.show),
    page("/keys/{key}/rotate", ADMIN, keys.ask_rotate),
    action("/keys/{key}/rotate", ADMIN, keys.rotate),
    page("/keys/{key}/revoke", ADMIN, keys.ask_revoke),
    action("/keys/{key}/revoke", ADMIN, keys.revoke),
    action("/keys/{key}/unban", OPERATOR, keys.lift_ban),
    page("/bans", VIEWER, keys.list_bans),
    action("/bans", OPERATOR, keys.lift_bans),
    page("/orders", VIEWER, orders.list_orders),
    page("/orders/export", VIEWER, orders.export),
    action("/orders/ship", OPERATOR, partial(orders.change, "ship")),
    action("/orders/complete", OPERATOR, partial(orders.change, "complete")),
    action("/orders/cancel", OPERATOR, partial(orders.change, "cancel")),
    action("/orders/{order}/edit", OPERATOR, orders.edit),
    page("/orders/{order}", VIEWER, orders.show),
    page("/imports", VIEWER, imports.list_imports),
    page("/imports/new", OPERATOR, imports.ask),
    action("/imports/new", OPERATOR, imports.upload),
    page("/imports/{upload}", VIEWER, imports.show),
    page("/imports/{upload}/rejects", OPERATOR, imports.rejects),
    action("/imports/{upload}/check", OPERATOR, imports.check),
    action("/imports/{upload}/import", OPERATOR, imports.start),
    action("/imports/{upload}/stop", OPERATOR, imports.stop),
    action("/imports/{upload}/discard", OPERATOR, imports.discard),
    page("/audit", VIEWER, audit.audit),
    page("/sessions", VIEWER, access.list_sessions),
    action("/sessions/{session}/end", ADMIN, access.end_session),
)
"""A route without a role is an error when the console is loaded. Templates ask `may(path)`, which looks here."""

_PATTERNS = [(compile_path(each.path)[0], each) for each in ROUTES if each.role is not None]


def needed_role(method: str, path: str) -> Role:
    """The role that a method on a path below the console's needs. Raises LookupError if there is no such route."""
    for pattern, endpoint in _PATTERNS:
        if endpoint.method == method and endpoint.role is not None and pattern.match(path):
            return endpoint.role
    raise LookupError(f"The console does not have {method} {path}.")
