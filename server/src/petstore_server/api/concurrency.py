"""How many requests are answered at the same time: a bound for the process, and a share of it for each account.

Beyond it a request gets 503 at once: waiting in a longer queue would only make every response late.
"""

from petstore_server.api.errors import Overloaded

MOST = 1024
"""Requests of all accounts together."""

MOST_OF_AN_ACCOUNT = 256


class Concurrency:
    """Counts the requests that operations are answering.

    An account gets at most as many as are left for others, so several greedy accounts leave room for one more.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._total = 0
        self._of_account: dict[int, int] = {}

    def enter(self, account_id: int) -> None:
        """Count a request, until `leave`. Raises Overloaded."""
        used = self._of_account.get(account_id, 0)
        if used >= min(MOST_OF_AN_ACCOUNT, MOST - self._total):
            self.refused += 1
            raise Overloaded
        self._of_account[account_id] = used + 1
        self._total += 1

    def leave(self, account_id: int) -> None:
        """A request that was counted has its response."""
        self._total -= 1
        left = self._of_account[account_id] - 1
        if left:
            self._of_account[account_id] = left
        else:
            del self._of_account[account_id]
