"""The admin port: liveness, readiness and metrics. It takes no key, so it belongs on a private address (D1)."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from petstore_server.http.observe import Metrics


class Readiness(NamedTuple):
    """Whether requests should be sent here, and why not: `detail` is what /readyz answers."""

    ready: bool
    detail: dict[str, Any]


def admin_application(metrics: Metrics, readiness: Callable[[], Awaitable[Readiness]]) -> Starlette:
    """The ASGI application of the admin port."""

    async def livez(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        state = await readiness()
        metrics.ready.set(state.ready)
        return JSONResponse(state.detail, 200 if state.ready else 503)

    async def exposition(_: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", exposition)])
