"""One request on its way through the gate: what it asks for, and who sent it."""

from petstore_server.domain.audit import Actor
from petstore_server.domain.keys import Principal
from petstore_server.domain.windows import Decision
from petstore_server.server.request import Request


class Call:
    """A request, and what the gate finds out about it.

    `request_id` is 1 to 128 visible ASCII characters, `segments` are those of the path, percent-decoded. `operation` is
    the identifier of the operation, or "none"; `principal` and `decision` are None until the gate has them,
    `code` is that of the error that the response reports.
    """

    __slots__ = ("code", "decision", "operation", "principal", "request", "request_id", "segments")

    def __init__(self, request: Request, request_id: bytes, segments: list[str]) -> None:
        self.request = request
        self.request_id = request_id
        self.segments = segments
        self.operation = "none"
        self.principal: Principal | None = None
        self.decision: Decision | None = None
        self.code: str | None = None

    def actor(self, principal: Principal, at: float) -> Actor:
        """Who makes the change that this request asks for, `at` Unix seconds, for the audit log."""
        return Actor(f"key:{principal.key_id}", at, self.request_id.decode("ascii"))
