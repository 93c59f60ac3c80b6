"""Arrays as PostgreSQL reads them, as one parameter: several times as fast as to convert each element."""

from collections.abc import Iterable


def numbers(values: Iterable[float]) -> str:
    """A literal of an array of numbers."""
    return f"{{{','.join(map(str, values))}}}"


def texts(values: Iterable[str | None]) -> str:
    """A literal of an array of texts; None is NULL."""
    return f"{{{','.join(map(_quoted, values))}}}"


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
