"""What `petstore doctor` found."""

from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "fail"]


class CheckResult(NamedTuple):
    """The outcome of one check: what is so, and, unless all is well, what to do about it."""

    check: str
    level: Level
    message: str
    remedy: str = ""
