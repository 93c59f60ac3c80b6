"""Results and failures of counters that processes share."""

import msgspec

STEP_ADMITTED, STEP_BANNED_NOW = 1, 3


class CountersUnavailable(Exception):
    """The shared counters cannot be used now. `refused`: they reject this process, and waiting will not help."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        self.reason = reason
        self.refused = refused


class Counted(msgspec.Struct, array_like=True, frozen=True):
    """What `count.lua` returns for a request: how it ended, the open windows, whether it is a strike, and the ban.

    Times are Unix seconds; at level 0 there is no ban. Without a key, the first three fields are those of the address.
    The script may omit trailing zeros.
    """

    step: int
    minute: int
    minute_used: int = 0
    day: int = 0
    day_used: int = 0
    struck: int = 0
    began: int = 0
    until: int = 0
    level: int = 0
