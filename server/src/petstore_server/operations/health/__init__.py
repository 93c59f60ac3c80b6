"""Health checks of an installation: what is wrong, and what to do about it."""

from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "fail"]
Action = Literal["create account", "create key", "rotate key", "lift ban", "back up", "restore", "check store"]


class CheckResult(NamedTuple):
    """What one check found and, unless all is well, what to do about it. Neither text holds a secret.

    `action` names what the command line has a command for, to the thing with the identifier `subject`.
    """

    check: str
    level: Level
    message: str
    remedy: str = ""
    action: Action | None = None
    subject: str = ""
