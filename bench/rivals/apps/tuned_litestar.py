"""The tuned operations served by Litestar: `granian --interface asgi tuned_litestar:app`."""

import os
from typing import Annotated

from litestar import Litestar, Request, Response, delete, get, post
from litestar.di import Provide
from litestar.params import Parameter
from tuned import Account, Refused, Reply, Service

service = Service(os.environ["RIVAL_DATABASE"])
Admitted = tuple[Account, dict[str, str]]


def refused(_: Request, error: Refused) -> Response:
    return Response(error.body, status_code=error.status, media_type="application/json")


async def admit(request: Request) -> Admitted:
    return service.admit(request.headers)


def sent(admitted: Admitted, reply: Reply) -> Response:
    headers = admitted[1] | reply.headers
    return Response(reply.body, status_code=reply.status, headers=headers, media_type="application/json")


@get("/v1/store/orders")
async def list_orders(request: Request, admitted: Admitted) -> Response:
    return sent(admitted, service.list_orders(request.headers))


@delete("/v1/store/orders/{order_id:int}", status_code=200)
async def cancel_order(order_id: int, admitted: Admitted) -> Response:
    return sent(admitted, await service.cancel(admitted[0], order_id))


@get("/v2/store/orders")
async def list_page(
    request: Request, admitted: Admitted, cursor: int = -(2**63), limit: Annotated[int, Parameter(ge=1, le=1000)] = 100
) -> Response:
    return sent(admitted, service.page(request.headers, cursor, limit))


@get("/v2/store/orders/{order_id:int}")
async def get_order(request: Request, order_id: int, admitted: Admitted) -> Response:
    return sent(admitted, service.order(request.headers, order_id))


@post("/v2/store/orders")
async def place_order(request: Request, admitted: Admitted) -> Response:
    return sent(admitted, await service.place(admitted[0], request.headers, await request.body()))


app = Litestar(
    [list_orders, cancel_order, list_page, get_order, place_order],
    dependencies={"admitted": Provide(admit)},
    exception_handlers={Refused: refused},
    openapi_config=None,
)
