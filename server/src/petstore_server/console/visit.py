"""One request of an operator: read, render, read forms, redirect with a notice."""

import asyncio
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from petstore_server.console import security
from petstore_server.console.forms import Form, is_path, require_storable
from petstore_server.console.rendering import ENVIRONMENT, plain_times
from petstore_server.console.sources import Reading, Sources, read_within
from petstore_server.domain.audit import Actor, AuditFilters, AuditPage
from petstore_server.domain.errors import InvalidInput, ServiceUnavailable
from petstore_server.domain.keys import holds_key
from petstore_server.domain.roles import Role
from petstore_server.domain.timestamps import format_unix, parse_when
from petstore_server.operations.admin_port import CONSOLE_PATH

T = TypeVar("T")

PAGE_SECONDS = 1.5  # how long a page waits for its data, so that it is sent within two seconds

_MAX_FORM = 256 * 1024
_MAX_FIELDS = 2000
_REPEATED_SECONDS = 5.0  # for which a second click gets the response to the first
_MAX_NOTICE = 1000  # characters: a cookie holds 4 KiB
_MAX_KEPT = 2500  # bytes of a form that is kept in a cookie
_KEPT_SECONDS = 3600
# The forms whose pages show again what was typed.
_KEPT = re.compile(
    "/accounts(/[^/]+/(keys|webhooks|plan|orders|details))?|/orders/[^/]+/edit|/webhooks/[^/]+/replay|/imports/[^/]+/check"
)


@dataclass(eq=False)
class RefusedRequest(Exception):
    """A request that is refused with a page: its status, title and text."""

    status: int
    title: str
    text: str


@dataclass(eq=False)
class DuplicateSubmission(Exception):
    """A form that was submitted just before; `response` is the response to that."""

    response: Response


Needs = Callable[[str, str], Role]  # the role that a method on a path below the console's needs


class Visit:
    """A request. `operator` is the name of who has signed in, empty without a sign-in; `now` is in Unix seconds.

    `verified`: a proxy has signed the operator in. `session` is the identifier of the session, empty without one.
    """

    def __init__(self, request: Request, sources: Sources, needs: Needs) -> None:
        self.request = request
        self.query, self.path = request.query_params, request.path_params
        self.sources = sources
        self.store = sources.store
        self.now = sources.clock()
        self.token = security.get_cookie(request, "session")
        self.operator, self.role, self.verified, self.session = "", Role.VIEWER, False, ""
        self._needs = needs
        self._ends = asyncio.get_running_loop().time() + PAGE_SECONDS
        self._path = quote(request.url.path).removeprefix(CONSOLE_PATH)
        query = f"?{request.url.query}" if request.url.query else ""
        self.here = self._path + query if request.method == "GET" else "/"
        """The page, below the console's path, that the operator sees: of a form, the one that it is on."""

        self._form: Form | None = None
        self._to_keep = ""
        self._submission: bytes | None = None
        self._claimed = False
        self.shows_kept = False

    @property
    def actor(self) -> Actor:
        return Actor(f"operator:{self.operator}", self.now, verified=self.verified)

    def may(self, path: str, method: str = "POST") -> bool:
        """Whether the operator's role allows a page or an action of the console, by its path below the console's."""
        return bool(self.operator) and self.role.allows(self._needs(method, path))

    def parameter(self, name: str) -> str:
        """A parameter in the URL; empty if it is not there."""
        return self.query.get(name, "")

    @property
    def page_number(self) -> int:
        """The number of the page of a list in the URL; 1 if that is not a number."""
        text = self.parameter("page")
        return int(text[:6]) if text.isdecimal() else 1

    def filters(self, *names: str) -> Form:
        """The filters of a list as they were typed."""
        return Form((name, self.parameter(name)) for name in names)

    def when(self, text: str, *, past: bool = True) -> datetime | None:
        """A time that was typed, a duration before or after now among them; None for none. Raises InvalidInput."""
        return parse_when(text, datetime.fromtimestamp(self.now, UTC), past=past) if text else None

    async def read(self, work: Coroutine[Any, Any, T], seconds: float = math.inf) -> Reading[T]:
        """Read something that the page can do without, in the time that is left for the page."""
        return await read_within(work, min(seconds, self._ends - asyncio.get_running_loop().time()))

    async def require(self, work: Coroutine[Any, Any, T]) -> T:
        """Read what the page is about. Raises what that raises, and ServiceUnavailable if it takes too long."""
        return (await self.read(work)).required()

    async def last_changes(self, subject: str, limit: int = 20) -> Reading[AuditPage]:
        """The last entries of the audit log about a subject, such as `key:key_…`."""
        return await self.read(self.store.audit.page(AuditFilters(subjects=(subject,)), limit))

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page. Its notice, if there is one, is shown once."""
        notice, overall = self._notice(), self.sources.monitor.overall() if self.operator else None
        reasons = set[str]()

        def is_new(reason: str) -> bool:
            """Whether the page has not given this reason yet."""
            known = len(reasons)
            reasons.add(reason.casefold().rstrip("."))
            return len(reasons) > known

        if overall:
            is_new(overall.reason)
        forms = {name: value for name, value in values.items() if isinstance(value, Form)}
        for name, form in forms.items():  # of `key_form`, for example, the ids begin with `key-`
            form.prefix = name.rpartition("form")[0].replace("_", "-")
        names = ("operator", "role", "verified", "session", "may", "sources", "now", "query", "here", "shows_kept")
        context = {
            **{name: getattr(self, name) for name in names},
            "settings": self.sources.settings,
            "form_token": security.form_token(self.token, secrets.token_urlsafe(9)) if self.operator else "",
            "path": self.request.url.path,
            "notice": notice,
            "overall": overall,
            "is_new": is_new,
            "status": status,
            "forms": [form for form in forms.values() if form.errors],
        }
        response = HTMLResponse(ENVIRONMENT.get_template(template).render(context | values), status)
        if notice is not None:
            security.delete_cookie(self.request, response, "notice")
        return response

    def redirect_with_notice(self, path: str, *lines: str | tuple[str, str], kind: str = "ok") -> Response:
        """Redirect to a page of the console that then shows a notice: what was done, or why nothing was.

        Each line is a text, or a text and the path, below the console's, of what it is about.
        """
        response = RedirectResponse(CONSOLE_PATH + path, 303)
        linked = [(line, "") if isinstance(line, str) else line for line in lines]
        cut = [(text[: _MAX_NOTICE // len(lines)], link) for text, link in linked]
        signed = security.signed(self.token, msgspec.json.encode([kind, cut]))
        security.set_cookie(self.request, response, "notice", signed, max_age=60)
        return response

    async def form(self, *, once: bool = True) -> Form:
        """Read the submitted form and check who submitted it. Unless `once`, it may be submitted again.

        Raises RefusedRequest, DuplicateSubmission, InvalidInput, ServiceUnavailable.
        """
        form = await self._read_form()
        await self.require_form_token(form["form_token"])
        if once:
            await self.submit_once(form.content)
        return form

    async def _read_form(self) -> Form:
        body = bytearray()
        async for chunk in self.request.stream():
            body += chunk
            if len(body) > _MAX_FORM:
                raise RefusedRequest(413, "The form is too large", "Nothing was changed. Send less at a time.")
        try:
            fields = parse_qsl(body.decode(), max_num_fields=_MAX_FIELDS)
        except ValueError:
            raise InvalidInput("The form cannot be read; go back and try again.") from None
        require_storable(value for _, value in fields)
        self._form = Form(fields)
        self._form.content = bytes(body)
        if is_path(self._form["here"]):
            self.here = self._form["here"]
        return self._form

    async def submit_once(self, content: bytes) -> None:
        """Note that this content, which has the token of its page, was submitted.

        Raises DuplicateSubmission if it was just before, RefusedRequest if it was at any time, on whatever host.
        """
        submission = self._digest(content)
        earlier = self.sources.submissions.get(submission)
        if earlier is not None:
            await asyncio.wait({earlier})  # which a cancellation does not end
            raise DuplicateSubmission(earlier.result())
        self._submission, self.sources.submissions[submission] = submission, asyncio.Future()
        if not await self.store.sessions.claim_form(submission, self.now):
            when = plain_times(str(format_unix(await self.store.sessions.find_form(submission))))
            text = f"It was submitted at {when} UTC and does nothing again. To repeat it, fill in the form anew."
            raise RefusedRequest(409, "This form was submitted before", text)
        self._claimed = True

    async def end(self, response: Response) -> None:
        """Keep the response to a form for the second click of a double click, and what was typed if it was not done."""
        if self._submission is not None:
            if self._claimed and 400 <= response.status_code < 500:  # it has changed nothing
                with suppress(ServiceUnavailable):
                    await self.store.sessions.release_form(self._submission)
            self.sources.submissions[self._submission].set_result(response)
            asyncio.get_running_loop().call_later(_REPEATED_SECONDS, self.sources.submissions.pop, self._submission)
        if self._to_keep:
            security.set_cookie(self.request, response, "kept", self._to_keep, max_age=_KEPT_SECONDS, strict=False)
        elif self._form is not None and response.status_code < 400 and (await self._read_kept())[0] == self._path:
            security.delete_cookie(self.request, response, "kept")

    @property
    def is_kept(self) -> bool:
        """Whether it submits a form whose page shows again what was typed, if that was kept."""
        return _KEPT.fullmatch(self._path) is not None

    async def keep_form(self) -> bool:
        """Keep what was typed in the browser, for a form that is not done now. No form with a key is kept."""
        if not self.request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return False  # an upload, which is not read again
        with suppress(RefusedRequest, InvalidInput, ServiceUnavailable):
            form = self._form or await self._read_form()
            if self.is_kept and (
                self._claimed or await self.store.sessions.find_form(self._digest(form.content)) is None
            ):
                fields = [(name, value) for name, value in form.fields if name not in ("form_token", "here")]
                content = msgspec.json.encode([self._path, fields])
                if len(content) <= _MAX_KEPT and not any(holds_key(value) for _, value in fields):
                    self._to_keep = security.signed(await self.require(self.store.epoch()), content)
        return bool(self._to_keep)

    def _digest(self, content: bytes) -> bytes:
        return sha256(self._path.encode() + b"\n" + content).digest()

    async def kept(self, path: str) -> Form | None:
        """The kept input of the form with this path, below the console's; None also if the role lacks the form."""
        if not self.may(path):
            return None
        kept_path, fields = await self._read_kept()
        self.shows_kept = self.shows_kept or kept_path == path
        return Form(fields) if kept_path == path else None

    async def _read_kept(self) -> tuple[str, list[tuple[str, str]]]:
        """The path and the fields of the form that is kept; empty if there is none."""
        cookie = security.get_cookie(self.request, "kept")
        epoch = (await self.read(self.store.epoch())).value if cookie else None  # signed for sessions that follow too
        content = security.verified(epoch, cookie) if epoch else None
        return msgspec.json.decode(content or b'["",[]]', type=tuple[str, list[tuple[str, str]]])

    async def require_form_token(self, given: str) -> None:
        """Raises RefusedRequest unless this is a token of the session's forms, and the session has not ended.

        That is looked up again if the form took longer than PAGE_SECONDS to arrive; the page's time begins then.
        """
        arrived = asyncio.get_running_loop().time()
        if arrived > self._ends:
            self._ends, self.now = arrived + PAGE_SECONDS, self.sources.clock()
            if self.session and await self.sources.find_session(self.token, self.now) is None:
                self.operator = ""
                text = "Nothing was changed. Sign in again, and repeat the action."
                raise RefusedRequest(401, "Your session has ended", text)
        if not security.is_form_token(given, self.token):
            raise RefusedRequest(
                403,
                "The form has expired",
                "Nothing was changed. The form was made before you last signed in; show it again and repeat it.",
            )

    def _notice(self) -> tuple[str, list[tuple[str, str]]] | None:
        content = security.verified(self.token, security.get_cookie(self.request, "notice"))
        return msgspec.json.decode(content, type=tuple[str, list[tuple[str, str]]]) if content else None


Handler = Callable[[Visit], Awaitable[Response]]  # responds to a request
