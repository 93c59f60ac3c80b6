"""The usage of the sample accounts: three months of history, current windows, and a ban."""

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from petstore_server.domain.accounts import Account, Plan
from petstore_server.domain.bans import Ban, BanPolicy, ban_seconds
from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.domain.usage import Activity, Granularity, KeylessCounts, Usage, UsageCounts
from petstore_server.domain.windows import Count
from petstore_server.store import Store
from petstore_server.telemetry.recent import INTERVALS, SAMPLE_SECONDS, Totals

DAYS = 90
"""Days of history."""

_DETAILED_DAYS = 3  # with a row for each hour; earlier days are one row
_BANS = (4, 5, 6)  # levels; the last one is in force


class Profile(NamedTuple):
    """How a sample account uses the service: the part of its day's limit, and the part of its requests refused."""

    share: float
    refused: float = 0.0
    banned: bool = False


PROFILES: Mapping[str, tuple[Plan, Profile]] = {
    "Harbour Pets": (Plan.BUSINESS, Profile(0.34)),
    "Acme Pet Supplies": (Plan.PRO, Profile(0.93, 0.012)),
    "Nightly Sync": (Plan.FREE, Profile(1.0, 0.21)),
    "Paws Express": (Plan.PRO, Profile(0.22, 0.4, banned=True)),
    "Veterinary Supplies of Greater Northern Europe and Scandinavia": (Plan.PRO, Profile(0.48, 0.002)),
    "Quiet Cat Cafe": (Plan.FREE, Profile(0.0)),
}
"""The sample accounts by name. The visitor's own account has no history, so that its first request is seen."""


async def fill_usage(store: Store, accounts: Mapping[str, Account], keys: Mapping[str, str], now: float) -> None:
    """Save the history, the windows and the bans of the accounts; `keys` has the id of one key for each, by name."""
    numbers = random.Random(7)  # noqa: S311 - the same sample data every time
    hours: dict[tuple[int, int], UsageCounts] = {}
    usage: dict[int, Usage] = {}
    for name, account in accounts.items():
        profile = PROFILES[name][1]
        hours.update({(account.id, start): counts for start, counts in _hours(account, profile, now, numbers)})
        usage[account.id] = _windows(account, profile, now)
    keyless = {start: KeylessCounts(numbers.randint(0, 9)) for start in _detailed(now)}
    this_hour = Granularity.HOUR.start(now)
    used = {keys[name]: this_hour for name in accounts if PROFILES[name][1].share}
    await store.usage.save(usage, [], Activity(hours, keyless, used))
    for name in accounts:
        if PROFILES[name][1].banned:
            for ban in _bans(keys[name], now):  # each one is in the audit log
                await store.usage.save({}, [ban])


def recent_requests(now: float) -> list[Totals]:
    """Samples of the hour before `now`, as a server that ran then would have taken them; counts end at zero."""
    numbers = random.Random(11)  # noqa: S311
    totals = [Totals(now, _statuses(0, 0, 0), _durations(0))]
    for minute in range(1, INTERVALS):
        answered = max(0, round(5 + 4 * math.sin(minute / 7) + numbers.uniform(-2, 2)))
        refused, wrong = int(numbers.random() < 0.15) * numbers.randint(1, 3), int(numbers.random() < 0.1)
        later = totals[-1].statuses
        statuses = _statuses(later["200"] - answered, later["429"] - refused, later["409"] - wrong)
        totals.append(Totals(now - minute * SAMPLE_SECONDS, statuses, _durations(sum(statuses.values()))))
    return totals[::-1]


def _hours(account: Account, profile: Profile, now: float, numbers: random.Random) -> Iterator[tuple[int, UsageCounts]]:
    today = Granularity.DAY.start(now)
    for number in range(DAYS, _DETAILED_DAYS - 1, -1):
        weekend = 0.55 if number % 7 in (2, 3) else 1.0
        growth = 1 - number / (2.5 * DAYS)
        yield today - number * DAY, _counts(account, profile, weekend * growth * numbers.uniform(0.8, 1.0))
    for start in _detailed(now):
        hour = start % DAY // HOUR
        part = (1 + math.sin((hour - 8) / 24 * 2 * math.pi) * 0.9) / 24
        if start == Granularity.HOUR.start(now):
            part *= (now - start) / HOUR
        yield start, _counts(account, profile, part * numbers.uniform(0.8, 1.0))


def _detailed(now: float) -> range:
    first = Granularity.DAY.start(now) - (_DETAILED_DAYS - 1) * DAY
    return range(first, int(now) + 1, HOUR)


def _counts(account: Account, profile: Profile, part: float) -> UsageCounts:
    """The counts of a period in which this part of what is usual in a day is used."""
    admitted = round(account.limits.per_day * profile.share * part)
    refused = round(admitted * profile.refused)
    if profile.banned:
        return UsageCounts(admitted, refused // 3, 0, refused - refused // 3, admitted // 200)
    if profile.share >= 1:
        return UsageCounts(admitted, 0, refused, 0, admitted // 100)
    return UsageCounts(admitted, refused, 0, 0, admitted // 100)


def _windows(account: Account, profile: Profile, now: float) -> Usage:
    used = round(account.limits.per_day * profile.share)
    return Usage(Count(), Count(int(now) - DAY // 2, used)) if used else Usage()


def _bans(key_id: str, now: float) -> Iterator[Ban]:
    """One ban after another, each twice as long as the one before; the last one has just begun."""
    began = int(now) - 240
    for level in _BANS:
        starts = began - (_BANS[-1] - level) * 3 * HOUR
        yield Ban(key_id, starts, starts + ban_seconds(level, BanPolicy()), level)


def _statuses(answered: int, refused: int, wrong: int) -> Counter[str]:
    return Counter({"200": answered, "429": refused, "409": wrong})


def _durations(requests: int) -> Counter[float]:
    """Requests by duration, of which most take less than half a millisecond."""
    shares = {0.0005: 0.9, 0.001: 0.97, 0.0025: 0.995, 0.005: 1.0}
    return Counter({bound: round(requests * share) for bound, share in shares.items()})
