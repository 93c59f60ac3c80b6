"""Sends requests exactly as a test words them: HTTP libraries refuse or mend what a server must be able to take."""

import httpx2

from testing.wire import send


class RawTransport(httpx2.AsyncBaseTransport):
    """Sends each request over a connection of its own to a port of this host."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        body = b"".join([part async for part in request.stream])
        lines = [(name, value) for name, value in request.headers.raw if name.lower() != b"connection"]
        head = b"%s %s HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)
        head += b"".join(b"%s: %s\r\n" % line for line in [*lines, (b"Connection", b"close")])
        return _response(request.method, await send(self.port, head + b"\r\n" + body))


def _response(method: str, raw: bytes) -> httpx2.Response:
    head, separator, body = raw.partition(b"\r\n\r\n")
    assert separator, f"not a response: {raw!r}"
    status_line, *lines = head.split(b"\r\n")
    headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    assert not (method == "HEAD" and body), f"HEAD was answered with {len(body)} bytes"
    return httpx2.Response(int(status_line.split(b" ")[1]), headers=headers, stream=httpx2.ByteStream(body))
