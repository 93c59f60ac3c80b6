"""The admin port: liveness, readiness and metrics. It takes no key, so it belongs on a private address (D1)."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class Readiness(NamedTuple):
    """Whether requests should be sent here, and why not: `detail` is what /readyz answers."""

    ready: bool
    detail: dict[str, Any]


def admin_application(
    readiness: Callable[[], Awaitable[Readiness]], exposition: Callable[[], Awaitable[bytes]]
) -> Starlette:
    """The ASGI application of the admin port; `exposition` gives the metrics in Prometheus's text format."""

    async def livez(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        state = await readiness()
        return JSONResponse(state.detail, 200 if state.ready else 503)

    async def metrics(_: Request) -> Response:
        return Response(await exposition(), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)])
