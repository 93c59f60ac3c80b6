"""The result of one health check."""

from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "fail"]


class CheckResult(NamedTuple):
    """What one check found and, unless all is well, what to do about it. Neither text holds a secret."""

    check: str
    level: Level
    message: str
    remedy: str = ""
