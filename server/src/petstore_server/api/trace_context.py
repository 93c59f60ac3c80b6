"""The trace of a request, as its caller names it in `traceparent` (W3C Trace Context)."""

import re
from typing import NamedTuple

# A later version may have more fields, each behind a hyphen.
_TRACEPARENT = re.compile(
    rb"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<parent>[0-9a-f]{16})-[0-9a-f]{2}"
    rb"(?P<more>-[!-~]*)?"
)


class TraceContext(NamedTuple):
    """The identifiers of a trace, 32 hexadecimal digits, and of the caller's span in it, 16."""

    trace_id: str
    parent_id: str


def parse_traceparent(value: bytes | None) -> TraceContext | None:
    """The trace that a header names. None if it is missing, malformed, or repeated, which joins the values."""
    found = _TRACEPARENT.fullmatch(value) if value else None
    if found is None or (found["more"] and found["version"] == b"00"):
        return None
    return TraceContext(found["trace"].decode(), found["parent"].decode())
