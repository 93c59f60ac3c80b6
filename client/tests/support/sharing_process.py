"""A process that cancels orders one after another, as fast as its client lets it, until it is terminated.

    python -m support.sharing_process BASE_URL KEY EPOCH LATE

It prints a line when it begins, and one for each order.
"""

import itertools
import sys
import time

from petstore_client import Client, NotFoundError

SPEED = 15


class FastClock:
    """The time of this host, which passes faster. Processes with the same epoch have the same time.

    After a long sleep the process wakes `late` seconds late, as a busy or distant one does.
    """

    def __init__(self, epoch: float, late: float = 0.0) -> None:
        self._epoch = epoch
        self._late = late

    def now(self) -> float:
        return self._epoch + (time.time() - self._epoch) * SPEED

    def monotonic(self) -> float:
        return self.now()

    def sleep(self, seconds: float) -> None:
        time.sleep((seconds + self._late * (seconds > 5)) / SPEED)

    async def sleep_async(self, seconds: float) -> None:
        raise NotImplementedError


def main(base_url: str, key: str, epoch: float, late: float) -> None:
    """Cancel orders, which do not exist, until the process is terminated."""
    with Client(base_url, api_key=key, clock=FastClock(epoch, late)) as petstore:
        print("ready", flush=True)  # noqa: T201 - for the test
        for number in itertools.count():
            try:
                petstore.cancel_order(number)
            except NotFoundError:
                print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
