"""The history of an account's requests, by hour or by day in UTC."""

from enum import StrEnum
from typing import NamedTuple


class Granularity(StrEnum):
    HOUR = "hour"
    DAY = "day"


class UsageRow(NamedTuple):
    """The requests of one account in the hour or day that begins at `start` (Unix seconds)."""

    start: int
    admitted: int
    refused: int
