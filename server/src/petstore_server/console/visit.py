"""One request of an operator, and what pages do with it: render, read forms, redirect with a notice."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from petstore_server.console.security import NOTICE_COOKIE, PATH, form_token, is_form_token, signature
from petstore_server.console.services import Services
from petstore_server.domain.audit import Actor
from petstore_server.domain.sessions import Session

_LARGEST_FORM = 256 * 1024
_MOST_FIELDS = 2000
_LONGEST_NOTICE = 1000  # characters: a cookie holds 4 KiB


class RefusedRequest(Exception):
    """A request that is refused with a page: its status, title and text."""

    def __init__(self, status: int, title: str, text: str) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.text = text


class Form:
    """The fields of a submitted form; a field that is missing is empty."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return next((value.strip() for field, value in self._fields if field == name), "")

    def all(self, name: str) -> list[str]:
        """All values of a field that may occur several times."""
        return [value for field, value in self._fields if field == name]


class Visit:
    """A request with its session. `now` is in Unix seconds."""

    def __init__(
        self, request: Request, services: Services, templates: Environment, token: str, session: Session | None
    ) -> None:
        self.request = request
        self.services = services
        self.store = services.store
        self.now = services.clock()
        self.session = session
        self._templates = templates
        self._token = token

    @property
    def actor(self) -> Actor:
        """The operator, for the audit log."""
        assert self.session is not None  # noqa: S101 - for the type checker: pages require a session
        return Actor(self.session.actor, self.now)

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self.actor.name.removeprefix("operator:")

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the URL."""
        return self.request.query_params

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page. Its notice, if there is one, is shown once."""
        notice = self._notice()
        context = {
            "operator": self.session.operator if self.session else None,
            "is_sample": self.services.is_sample,
            "environment": self.services.settings.environment,
            "form_token": form_token(self._token) if self.session else "",
            "now": self.now,
            "path": self.request.url.path,
            "notice": notice,
        }
        response = HTMLResponse(self._templates.get_template(template).render(context | values), status)
        if notice is not None:
            response.delete_cookie(NOTICE_COOKIE, path=PATH, httponly=True, samesite="strict")
        return response

    def done(self, path: str, text: str, kind: str = "ok") -> Response:
        """Redirect to a page of the console that then shows a notice: what was done, or why nothing was."""
        response = RedirectResponse(PATH + path, 303)
        content = urlsafe_b64encode(msgspec.json.encode([kind, text[:_LONGEST_NOTICE]])).decode()
        value = f"{content}.{signature(self._token, content)}"
        response.set_cookie(NOTICE_COOKIE, value, max_age=60, path=PATH, httponly=True, samesite="strict")
        return response

    async def form(self) -> Form:
        """Read the submitted form and check that this session's page submitted it. Raises RefusedRequest."""
        body = bytearray()
        async for chunk in self.request.stream():
            body += chunk
            if len(body) > _LARGEST_FORM:
                raise RefusedRequest(413, "The form is too large", "Nothing was changed. Send less at a time.")
        try:
            form = Form(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
        except ValueError:
            raise RefusedRequest(
                400, "The form cannot be read", "Nothing was changed. Go back and try again."
            ) from None
        self.require_form_token(form["form_token"])
        return form

    def require_form_token(self, given: str) -> None:
        """Raises RefusedRequest unless this is the token of the session's forms."""
        if not is_form_token(given, self._token):
            raise RefusedRequest(
                403,
                "The form has expired",
                "Nothing was changed. The form was made before you last signed in; open its page again and repeat it.",
            )

    def _notice(self) -> tuple[str, str] | None:
        content, _, given = self.request.cookies.get(NOTICE_COOKIE, "").partition(".")
        if not content or given != signature(self._token, content):
            return None
        kind, text = msgspec.json.decode(urlsafe_b64decode(content), type=tuple[str, str])
        return kind, text
