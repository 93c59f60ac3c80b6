"""The admin port: liveness, readiness and metrics, without a key; keep it private (D1)."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import Metric
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from petstore_server.operations.admin_port import WRONG_HOST, is_probe_host
from petstore_server.settings import Settings
from petstore_server.telemetry.metrics import exposition

_CONTENTS = """The admin port of the Pet Store Orders service:

/livez    200 while the process runs
/readyz   200 if it can take requests, 503 with the reason if not
/metrics  metrics in Prometheus's text format
/console/ the operator console, if it is on
"""


class Readiness(NamedTuple):
    """Whether the service can take requests; `detail` is the body of /readyz, with the reason if it cannot."""

    ready: bool
    detail: dict[str, Any]

    @classmethod
    def unavailable(cls, reason: str) -> "Readiness":
        return cls(False, {"status": "unavailable", "reason": reason})


DRAINING = Readiness.unavailable("draining: the process is about to stop")


def admin_application(
    readiness: Callable[[], Awaitable[Readiness]],
    collect: Callable[[], Awaitable[Iterable[Metric]]],
    settings: Settings,
    more: Sequence[BaseRoute] = (),
) -> Starlette:
    """The ASGI application of the admin port.

    `collect` returns the metrics. `more` are further routes, such as the console's.

    A page of another site that gets a browser to ask for health or metrics under its own name is refused (421).
    A path that is not served is 404, also with a slash at its end: a redirect would go to the request's Host.
    """

    async def livez() -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz() -> Response:
        state = await readiness()
        return JSONResponse(state.detail, 200 if state.ready else 503)

    async def metrics() -> Response:
        return Response(exposition(await collect()), media_type=CONTENT_TYPE_LATEST)

    def probe(respond: Callable[[], Awaitable[Response]]) -> Route:
        async def checked(request: Request) -> Response:
            known = is_probe_host(request.headers.get("host", ""), settings)
            return await respond() if known else PlainTextResponse(WRONG_HOST, 421)

        return Route(f"/{respond.__name__}", checked)

    root = Route("/", PlainTextResponse(_CONTENTS), methods=["GET"])
    application = Starlette(routes=[root, probe(livez), probe(readyz), probe(metrics), *more])
    application.router.redirect_slashes = False
    return application
