"""Carrying out the steps of a call over HTTP, blocking. `exchange_async` is the same, awaited."""

import threading
from collections.abc import Iterator
from typing import Generic

import httpx2

from petstore_client.clock import Clock
from petstore_client.errors import APIConnectionError
from petstore_client.gate import Gate
from petstore_client.records import Order
from petstore_client.steps import Emit, Queue, Read, Send, Sleep, Step, Steps, T
from petstore_client.wire import Reply, Target, connection_error, encoding_of


class Exchange(Generic[T]):
    """One call under way. `result` is there once `run` has returned None."""

    result: T

    def __init__(self, steps: Steps[T], http: httpx2.Client, target: Target, gate: Gate, clock: Clock) -> None:
        self._steps = steps
        self._http = http
        self._target = target
        self._gate = gate
        self._clock = clock
        self._response: httpx2.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def run(self) -> list[Order] | None:
        """Go on until orders are there, and return them; None at the end of the call. Raises PetstoreError."""
        try:
            step: Step = self._steps.send(None)
            while not isinstance(step, Emit):
                try:
                    outcome = self._perform(step)
                except APIConnectionError as error:
                    step = self._steps.throw(error)
                else:
                    step = self._steps.send(outcome)
        except StopIteration as end:
            self.result = end.value
            return None
        return step.orders

    def close(self) -> None:
        """Let go of the connection and of the gate, wherever the call stands."""
        try:
            self._steps.close()
        finally:
            self._close_response()

    def _perform(self, step: Sleep | Queue | Send | Read) -> Reply | bytes | None:
        if isinstance(step, Read):
            return self._read()
        self._close_response()
        if isinstance(step, Send):
            return self._send(step)
        if isinstance(step, Sleep):
            self._clock.sleep(step.seconds)
        else:
            decided = threading.Event()
            self._gate.when_decided(step.ticket, decided.set)
            decided.wait(step.seconds)
        return None

    def _send(self, step: Send) -> Reply:
        request = self._http.build_request(step.method, self._target.base_url + step.path, headers=step.headers)
        self._target.authorize(request)
        try:
            response = self._response = self._http.send(request, stream=True)
        except (httpx2.HTTPError, OSError) as error:
            raise connection_error(error, self._target) from error
        # A transport of a test may bring the body whole; httpx2 has undone its encoding then.
        self._pieces = iter([response.content]) if response.is_stream_consumed else response.iter_raw()
        return Reply(response.status_code, response.headers, encoding_of(response))

    def _read(self) -> bytes | None:
        try:
            return next(self._pieces, None)
        except (httpx2.HTTPError, OSError) as error:
            raise connection_error(error, self._target) from error

    def _close_response(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()
