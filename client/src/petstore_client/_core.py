"""What a client and its copies share in one process, and how a call is performed, except for I/O."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from math import inf
from typing import Any, Generic
from weakref import WeakValueDictionary, proxy

import httpx2

from petstore_client import _gate as gates
from petstore_client._effects import Effects, Emit, NotSent, Queue, Read, Send, Sleep, T
from petstore_client._http import Reply, Target, reply_of
from petstore_client._operations import Listed
from petstore_client._options import HttpT, InMemory, Options, bounded
from petstore_client._types import Clock
from petstore_client.errors import ConfigurationError, PetstoreError

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_TLS = ("ssl_cert_file", "ssl_cert_dir", "sslkeylogfile")
_CONNECTING = ("connect_tcp", "connect_unix_socket", "start_tls")  # how the names of httpx2's steps end
_BEFORE_SENDING = ("connect_tcp.started", "connect_unix_socket.started", "send_request_headers.started")
_PART = 4096  # bytes, which a peer mostly takes at once
_ends = ContextVar("ends", default=inf)  # of the call of this thread or task, in monotonic seconds
_closings = ContextVar("closings", default=0)  # of the gate, until this call's request passed it
_WITHOUT_CONNECTIONS = InMemory | httpx2.MockTransport | httpx2.ASGITransport | httpx2.WSGITransport
_abandoned: list[object] = []  # connections that belong to the parent process; closing them could disturb it


class Core(Generic[HttpT]):
    """What a client and its `with_options` copies share in one process: connections, gate, and the last list.

    A child process gets new connections and a new gate: with those of the parent it would read the parent's responses.
    """

    def __init__(self, target: Target, options: Options[HttpT, Any], http: Callable[..., HttpT]) -> None:
        self.target = target
        self.listed: Listed | None = None
        self.closed = False
        self.warned = False
        self._options = options
        self._make_http = http
        self._start()

    def enter(self) -> None:
        """Prepare for a call in this process. Raises PetstoreError if the client is closed."""
        if self.generation != gates.generation:
            with gates.lock:
                if self.generation != gates.generation:
                    self._check_forkable()
                    _abandoned.append(self.http)
                    self._start()
        self.check(self.generation)

    def check(self, began: object) -> None:
        """Raise PetstoreError if a call of this generation cannot continue."""
        if began != gates.generation:
            raise PetstoreError("The process was forked during this call, which continues only in the parent process.")
        if self.closed:
            raise PetstoreError("This client is closed; make a new one.")

    def close(self) -> bool:
        """Mark the client as closed and wake the calls that wait. Return whether to close the connections."""
        self.closed = True
        for wake in list(self._wakers):
            wake()
        return self._options.http_client is None and self.generation == gates.generation

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        """Call `wake` if the client is closed within the block."""
        self._wakers.add(wake)
        try:
            if self.closed:
                wake()
            yield
        finally:
            self._wakers.discard(wake)

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Let connecting, TLS, reads and writes end in time, and note each new connection (an extension of httpx2).

        Before something is sent, raises PetstoreError if the client was closed since the call began, and NotSent if the
        gate has closed since the request passed it, because it may have waited long for its connection.
        """
        step, _, state = event.rpartition(".")
        if event.endswith(_BEFORE_SENDING):
            self.check(self.generation)
            if self.gate.closed_since(_closings.get(), self._options.clock.monotonic()):
                raise NotSent
        if step.endswith(_CONNECTING) and state == "started":
            info["timeout"] = bounded(info["timeout"], _left(self._options.clock))  # an argument of what follows
        elif step.endswith(_CONNECTING) and state == "complete":
            stream = info["return_value"]
            self.streams[id(stream)] = stream
            read, write = (partial(each, proxy(stream)) for each in (type(stream).read, type(stream).write))
            stream.read = partial(_read_in_time, self._options.clock, read)  # without a reference to itself
            in_time = _write_parts_in_time if isinstance(self.http, httpx2.Client) else _write_in_time
            stream.write = partial(in_time, self._options.clock, write)

    def _start(self) -> None:
        options, generation = self._options, gates.generation
        self.gate = gates.gate_for(self.target.base_url, self.target.key.text, options.clock)
        self.loop: object = None  # the event loop of an AsyncClient
        self._wakers: set[Callable[[], object]] = set()
        self.streams: WeakValueDictionary[int, Any] = WeakValueDictionary()  # of connections
        with checked_environment():
            no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
            self.http = options.http_client or self._make_http(transport=options.transport, cookies=no_cookies)
        self.generation = generation  # last: until then, no call may use what is the parent's

    def _check_forkable(self) -> None:
        given = self._options.http_client or self._options.transport
        if given is not None and not isinstance(given, _WITHOUT_CONNECTIONS):  # others can contain an HTTPTransport
            what = "whose connections may belong to the parent process; make the client after the fork"
            raise PetstoreError(f"This client was made before the fork with a transport or http_client {what}.")


def _left(clock: Clock) -> float:
    """Seconds until the deadline of the call of this thread or task."""
    return _ends.get() - clock.monotonic()


def _read_in_time(
    clock: Clock, read: Callable[[int, float | None], T], max_bytes: int, timeout: float | None = None
) -> T:
    """Read from a connection: many bytes may each come within `timeout`, and together after the call's deadline."""
    return read(max_bytes, _in_time(clock, timeout))


def _write_in_time(
    clock: Clock, write: Callable[[bytes, float | None], T], buffer: bytes, timeout: float | None = None
) -> T:
    """Write to a connection, for which there may be less time than when the request began."""
    return write(buffer, _in_time(clock, timeout))


def _write_parts_in_time(
    clock: Clock, write: Callable[[bytes, float | None], None], buffer: bytes, timeout: float | None = None
) -> None:
    """Write to a connection where each part that the peer takes may take `timeout`."""
    for at in range(0, len(buffer), _PART):
        write(buffer[at : at + _PART], _in_time(clock, timeout))


def _in_time(clock: Clock, timeout: float | None) -> float | None:
    """The timeout of a part of the call of this thread or task. Raises TimeoutError after its deadline."""
    left = _left(clock)
    if left <= 0:
        raise TimeoutError("the deadline is over")
    return bounded(timeout, left)


class BaseDriver(Generic[T, HttpT]):
    """Runs a call or an iteration, and has its `result`. Its subclasses, one for each client, perform single effects.

    `outcome` is what the latest effect returned, and `error` what it raised; `emitted` are the orders to hand out.
    """

    result: T

    def __init__(self, effects: Effects[T], core: Core[HttpT], options: Options[HttpT, Any]) -> None:
        self.outcome: object = None
        self.error: BaseException | None = None
        self.emitted: list[Any] | None = None
        self._effects = effects
        self._core = core
        self._clock = options.clock
        self._response: httpx2.Response | None = None
        self._changes = False  # whether a request was sent that changes something
        # The id() of the latest error that the call saw, and noted a doubt in. A reference would keep its frames.
        self._judged = 0

    def resume(self) -> Sleep | Queue | Send | Read | None:
        """The next effect to perform; None if the call has emitted orders or ended. Raises PetstoreError."""
        _ends.set(inf)  # for what else reads from these connections
        error, self.error = self.error, None
        self._judged = id(error)
        if isinstance(error, RuntimeError) and self._core.http.is_closed:  # how httpx2 reports it
            error = PetstoreError("This client was closed during the call.")
        try:
            effect = self._effects.send(self.outcome) if error is None else self._effects.throw(error)
        except StopIteration as end:
            self.result, self.emitted = end.value, None
            return None
        if isinstance(effect, Send | Read):
            _ends.set(effect.ends)
        if isinstance(effect, Send):
            _closings.set(effect.closings)
            self._changes = self._changes or effect.method != "GET"
        if isinstance(effect, Emit):
            self.emitted = effect.orders
            return None
        return effect

    def note_doubt(self, error: BaseException) -> None:
        """Note in an interruption between two steps of a call, which cannot see it, that it may have been applied."""
        unseen = id(error) != self._judged and not hasattr(error, "__notes__")
        if self._changes and unseen and not isinstance(error, PetstoreError):
            error.add_note("It may have been applied; repeat the call to find out.")

    def request(self, effect: Send) -> httpx2.Request:
        """The request to send, with the key."""
        method, url, headers, timeout, content, *_ = effect
        request = self._core.http.build_request(method, url, headers=headers, timeout=timeout, content=content)
        request.headers["Authorization"] = f"Bearer {self._core.target.key.text}"  # hidden by repr()
        return request

    def received(self, response: httpx2.Response) -> Reply:
        """Keep a response until it is closed, and return its head."""
        self._response, self._generation = response, gates.generation
        return reply_of(response)

    def to_close(self) -> httpx2.Response | None:
        """The response, if there is one to close. One of the parent process is kept open."""
        response, self._response = self._response, None
        if response is not None and self._generation != gates.generation:
            _abandoned.append(self)  # with the iterator over the body, which closes the response when it is collected
            return None
        return response


@contextmanager
def checked_environment() -> Iterator[None]:
    """Raise ConfigurationError if httpx2 cannot use the settings. Its message never contains a proxy's password."""
    try:
        yield
    except OSError as error:
        values = ", ".join(f"{name}={os.environ[name]}" for name in _names(_TLS))
        what = f"The TLS settings of the environment ({values}) cannot be used"
        raise ConfigurationError(f"{what}: {error.strerror or error}.") from error
    except (ImportError, ValueError, httpx2.InvalidURL) as error:  # whose text can contain a part of the password
        hint = "is not a valid proxy; it must look like http://HOST:PORT."
        if isinstance(error, ImportError):
            hint = "is a SOCKS proxy, for which the package socksio is missing: pip install 'httpx2[socks]'."
        setting = proxy_variables() or "The proxy of the system's settings"  # which Windows and macOS have
        raise ConfigurationError(f"{setting} {hint}") from None


def proxy_variables() -> str:
    """The variables that set a proxy, for messages; "" if there are none."""
    return " or ".join(_names(_PROXIES))


def _names(wanted: tuple[str, ...]) -> list[str]:
    """The variables that are set, in either case."""
    return [name for name, value in os.environ.items() if value and name.lower() in wanted]
