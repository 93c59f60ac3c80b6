"""A strict reader of timestamps."""

import re
from datetime import datetime

_RFC_3339 = r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):\d\d:\d\d(\.\d{1,6}0*)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"


def read_timestamp(text: str) -> datetime:
    """An RFC 3339 date-time with an offset, as an aware datetime, read as the service reads it. Raises ValueError."""
    if not re.fullmatch(_RFC_3339, text, re.ASCII):
        raise ValueError(text)
    return datetime.fromisoformat(text.upper())
