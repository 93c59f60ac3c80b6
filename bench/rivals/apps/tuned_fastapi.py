"""The tuned operations served by FastAPI: `uvicorn --app-dir bench/rivals/apps tuned_fastapi:app`."""

import os
from typing import Annotated

from fastapi import Depends, FastAPI, Query, Request, Response
from tuned import Account, Refused, Reply, Service

service = Service(os.environ["RIVAL_DATABASE"])
app = FastAPI()


@app.exception_handler(Refused)
async def refused(_: Request, error: Refused) -> Response:
    return Response(error.body, error.status, media_type="application/json")


async def admit(request: Request) -> tuple[Account, dict[str, str]]:
    return service.admit(request.headers)


Admitted = Annotated[tuple[Account, dict[str, str]], Depends(admit)]


def sent(admitted: Admitted, reply: Reply) -> Response:
    return Response(reply.body, reply.status, admitted[1] | reply.headers, media_type="application/json")


@app.get("/v1/store/orders")
async def list_orders(request: Request, admitted: Admitted) -> Response:
    return sent(admitted, service.list_orders(request.headers))


@app.delete("/v1/store/orders/{order_id}")
async def cancel_order(order_id: int, admitted: Admitted) -> Response:
    return sent(admitted, await service.cancel(admitted[0], order_id))


@app.get("/v2/store/orders")
async def list_page(
    request: Request, admitted: Admitted, cursor: int = -(2**63), limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> Response:
    return sent(admitted, service.page(request.headers, cursor, limit))


@app.get("/v2/store/orders/{order_id}")
async def get_order(request: Request, order_id: int, admitted: Admitted) -> Response:
    return sent(admitted, service.order(request.headers, order_id))


@app.post("/v2/store/orders")
async def place_order(request: Request, admitted: Admitted) -> Response:
    return sent(admitted, await service.place(admitted[0], request.headers, await request.body()))
