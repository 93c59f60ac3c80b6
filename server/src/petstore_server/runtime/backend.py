"""The store and the limiter of one serving process, and what keeps the two in step."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import KeyNotFound, ServiceUnavailable
from petstore_server.domain.usage import Granularity, UsageRow, merge_rows
from petstore_server.limits.activity import UsageRecorder
from petstore_server.limits.memory import MemoryLimiter
from petstore_server.store import AccessVersion, Store

_CHECK_SECONDS = 2.0

_log = logging.getLogger(__name__)


class Backend:
    """The store and the limiter of one serving process. Made by `composition.opened_backend`."""

    def __init__(self, store: Store, limiter: MemoryLimiter, activity: UsageRecorder) -> None:
        self.store = store
        self.limiter = limiter
        self.activity = activity
        self._access_version: AccessVersion | None = None
        self._history: str | None = None
        self._saving = asyncio.Lock()
        self._saves = 0

    async def start(self) -> None:
        """Load the counts that an earlier process saved. Raises ServiceUnavailable."""
        self._access_version = await self.store.access_version()
        self._history = self._access_version.history
        usage = self.store.usage
        self.limiter.load(await self.store.identity(), await usage.all(), await usage.bans())

    async def watch_access(self, confirm: Callable[[bool], None]) -> None:
        """Check whether another process changed accounts, keys or bans, and pass the result to `confirm`.

        Raises ServiceUnavailable.
        """
        version = await self.store.access_version()
        changed = version != self._access_version
        if self._history not in (None, version.history):
            _log.warning("store has another history")
        self._history = version.history
        if changed:
            saves = self._saves
            bans = await self.store.usage.bans()
            if saves == self._saves:  # else `bans` may lack one that was saved meanwhile: the next round reads it
                self.limiter.replace_bans(bans)
                self._access_version = version
        confirm(changed)

    async def save(self) -> None:
        """Save what was counted since the last call. Raises ServiceUnavailable, and then keeps it for the next call."""
        async with self._saving:
            saving = asyncio.ensure_future(self._save())
            try:
                await asyncio.shield(saving)
            except asyncio.CancelledError:  # the store may save it all the same, so its outcome is needed
                with suppress(ServiceUnavailable):
                    await saving
                raise

    async def _save(self) -> None:
        """Save what was counted since the last call, and log the bans among it; or keep it."""
        unsaved, activity = self.limiter.take_unsaved(), self.activity.take()
        if not (unsaved.usage or unsaved.bans or activity):
            return
        try:
            await self.store.usage.save(*unsaved, activity)
        except BaseException:
            self.limiter.put_back(unsaved)
            self.activity.put_back(activity)
            raise
        self.limiter.saved(unsaved)
        self._saves += 1
        for ban in unsaved.bans:
            await self._log_ban(ban)

    async def history(self, account_id: int, start: int, end: int, by: Granularity) -> list[UsageRow]:
        """The usage history of an account, with what this process has not saved yet.

        Raises ServiceUnavailable.
        """
        async with self._saving:  # so that nothing is on its way to the store, and would count twice or not at all
            saved = await self.store.usage.history(account_id, start, end, by)
            pending = [row for row in self.activity.pending(account_id) if start <= by.start(row.start) < end]
        return merge_rows([*saved, *pending], by)

    async def _log_ban(self, ban: Ban) -> None:
        account = None
        with suppress(KeyNotFound, ServiceUnavailable):
            account = (await self.store.keys.find(ban.key_id)).account
        fields = {"key": ban.key_id, "account": account, "seconds": ban.until - ban.began}
        _log.warning("key banned", extra={**fields, "ban_level": ban.level, "strikes": ban.strikes})

    async def check(self) -> None:
        """Prove that requests can be served. Raises ServiceUnavailable with the reason."""
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self.store.check()
        except TimeoutError:
            raise ServiceUnavailable(f"the store did not respond within {_CHECK_SECONDS:g} seconds") from None
