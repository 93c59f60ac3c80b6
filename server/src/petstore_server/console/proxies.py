"""Signing in by a proxy: from whom the console accepts the name of an operator, and the role that the groups have.

There is no session then: name and role come from the headers of each request. The proxy is known by the address of the
connection; no header says where a request comes from (decision record 0025).
"""

from dataclasses import dataclass
from typing import NamedTuple

from starlette.requests import Request

from petstore_server.console.security import peer_of
from petstore_server.console.visit import RefusedRequest
from petstore_server.domain.audit import check_operator_name
from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.roles import Role, role_of
from petstore_server.operations.admin_port import is_console_proxy
from petstore_server.settings import Settings


class ProxiedOperator(NamedTuple):
    """Whom a proxy has signed in, and what the operator may do."""

    name: str
    role: Role


@dataclass(eq=False)
class RefusedSignIn(RefusedRequest):
    """A header that is not believed, or that gives no role. `operator` is the name, if a trusted proxy has given it."""

    operator: str = ""


def proxied_operator(request: Request, settings: Settings) -> ProxiedOperator | None:
    """The operator whom the proxy names, None if the request names none. Raises RefusedSignIn."""
    header = settings.console_user_header
    if header is None or not (names := request.headers.getlist(header)):
        return None
    peer = peer_of(request)
    if not is_console_proxy(peer, settings):
        raise _refused(f"The header {header} came from {peer}, which PETSTORE_CONSOLE_PROXIES does not have.")
    name = _name(header, names)
    groups = _groups(request, settings.console_groups_header)
    role = role_of(groups, settings.console_roles)
    if role is None:
        text = f"{name} is signed in, but in no group that has a role. PETSTORE_CONSOLE_ROLES gives roles to groups."
        raise RefusedSignIn(403, "You have no role here", text, name)
    return ProxiedOperator(name, role)


def _name(header: str, names: list[str]) -> str:
    """The name in the header. Raises RefusedSignIn unless it is one name, which the audit log can hold."""
    text = _text(header, names[0])
    if len(names) > 1 or "," in text:  # a program on the way may have joined them
        raise _refused(f"The header {header} was sent more than once, or holds more than one name.")
    if not text.strip():
        raise _refused(f"The header {header} is empty.")
    try:
        return check_operator_name(text)
    except InvalidInput as error:
        raise _refused(f"The header {header} cannot be used: {error.message}") from None


def _groups(request: Request, header: str | None) -> set[str]:
    """The groups in the header, none if there is no header. Raises RefusedSignIn if it was sent more than once."""
    if header is None or not (lines := request.headers.getlist(header)):
        return set()
    if len(lines) > 1:
        raise _refused(f"The header {header} was sent more than once.")
    return {group.strip() for group in _text(header, lines[0]).split(",")} - {""}


def _text(header: str, value: str) -> str:
    """The value in UTF-8: Starlette has decoded it as Latin-1, which keeps every byte. Raises RefusedSignIn."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise _refused(f"The header {header} is not in UTF-8.") from None


def _refused(text: str) -> RefusedSignIn:
    return RefusedSignIn(403, "This sign-in is refused", text)
