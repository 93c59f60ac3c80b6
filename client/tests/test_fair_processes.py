"""Processes that share a key: each gets its part of the limit, and the key is not banned.

The clocks of the service and the processes run faster, so that a minute takes four seconds.
"""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from petstore_client.testing import FakePetstore
from support.served import served
from support.sharing_process import SPEED, FastClock

PROCESSES, MINUTES, PER_MINUTE = 4, 4, 20


def test_each_process_gets_its_part_of_the_limit_although_some_wake_seconds_later() -> None:
    epoch = time.time()
    fake = FakePetstore(per_minute=PER_MINUTE, clock=FastClock(epoch))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with served(fake) as base_url, ExitStack() as stack:
        command = [sys.executable, "-m", "support.sharing_process", base_url, fake.api_key, str(epoch)]
        processes = [
            stack.enter_context(subprocess.Popen([*command, str(late)], env=environ, text=True, stdout=subprocess.PIPE))
            for late in range(PROCESSES)
        ]
        for process in processes:
            assert process.stdout
            assert "ready\n" == process.stdout.readline()
        time.sleep(MINUTES * 60 / SPEED)
        assert [None] * PROCESSES == [process.poll() for process in processes]  # no call has failed
        for process in processes:
            process.kill()
        done = [process.communicate()[0].count("done\n") for process in processes]
    assert min(done) >= MINUTES * PER_MINUTE / PROCESSES / 2, done
    assert 0 == fake.bans
