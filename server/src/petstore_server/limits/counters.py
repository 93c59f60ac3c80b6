"""What counters that processes share return, and how they fail."""

import msgspec

BAN_BRIDGE_SECONDS = 10
"""How long the shared counters hold a new ban: until the store has it and every process has read it."""


class CountersUnavailable(Exception):
    """The shared counters cannot be used now. `refused`: they reject this process, and waiting will not help."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused


StoredBan = tuple[int, int, int]
"""What the store has of a key's latest ban: start, end, level. Level 0 with a start: that ban was lifted."""

NO_BAN: StoredBan = (0, 0, 0)


_ADMITTED, _BANNED_NOW = 1, 3  # steps


class Counted(msgspec.Struct, array_like=True, frozen=True):
    """What `count.lua` returns for a request: how it ended, the open windows, whether it is a strike, and the ban.

    Times are Unix seconds; at level 0 there is no ban. Without a key, the first three fields are those of the address.
    """

    step: int
    minute: int
    minute_used: int
    day: int = 0
    day_used: int = 0
    struck: int = 0
    began: int = 0
    until: int = 0
    level: int = 0

    @property
    def admitted(self) -> bool:
        return self.step == _ADMITTED

    @property
    def banned_now(self) -> bool:
        return self.step == _BANNED_NOW
