"""Forms that were submitted in the last seconds: the second click of a double click gets the response to the first."""

import asyncio

from starlette.responses import Response

_KEPT_SECONDS = 5.0


class Submissions:
    """The responses to the forms of one process, by what identifies a submission: page, path and content."""

    def __init__(self) -> None:
        self._responses: dict[bytes, asyncio.Future[Response]] = {}

    def begin(self, submission: bytes) -> asyncio.Future[Response] | None:
        """The response to an earlier submission, which may be under way; None for the first one, which must `end`."""
        earlier = self._responses.get(submission)
        if earlier is None:
            self._responses[submission] = asyncio.get_running_loop().create_future()
        return earlier

    def end(self, submission: bytes, response: Response) -> None:
        """Keep the response for a second click."""
        self._responses[submission].set_result(response)
        asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._responses.pop, submission)
