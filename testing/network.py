"""Hosts on a network that a test makes for itself: network namespaces with an address each, joined by a switch.

    with Network("client", "service", delay=0.005) as network, network.host("client"):
        ...  # what this thread does, and the processes that it starts, have the address of this host

The switch is a process that forwards packets between TUN devices. It delays and drops them, so the kernel needs no
netem. Hosts reach each other only, not the network of the machine. Needs root.
"""

import ctypes
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

_NEW_NAMESPACE = 0x40000000  # CLONE_NEWNET of <sched.h>
_SET_DEVICE = 0x400454CA  # TUNSETIFF of <linux/if_tun.h>
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000  # IFF_TUN, IFF_NO_PI
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
_PREFIX = bytes((10, 77, 0))
_libc = ctypes.CDLL(None, use_errno=True)


class Network:
    """The named hosts, each `delay` seconds from the others: a packet and its response take twice that."""

    def __init__(self, *names: str, delay: float = 0.0) -> None:
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}
        self._namespaces = {name: _in_thread(_make_namespace) for name in names}
        devices = []
        for name, address in self.addresses.items():
            with self.host(name):
                devices.append(_make_device(address))
        command = [sys.executable, "-I", __file__, *map(str, devices)]
        self._switch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=devices)
        for device in devices:
            os.close(device)
        self.set(delay)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._switch.communicate()
        for namespace in self._namespaces.values():
            os.close(namespace)

    @contextmanager
    def host(self, name: str) -> Iterator[str]:
        """Move this thread to the host; return its address."""
        before = os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(self._namespaces[name], _NEW_NAMESPACE))
            yield self.addresses[name]
        finally:
            _check(_libc.setns(before, _NEW_NAMESPACE))
            os.close(before)

    def set(self, delay: float, *cut_off: str) -> None:
        """Change the delay, in seconds, and the hosts whose packets are lost, for packets from now on."""
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        numbers = [list(self.addresses).index(name) for name in cut_off]
        self._switch.stdin.write(json.dumps([delay, numbers]).encode() + b"\n")
        self._switch.stdin.flush()
        assert b"set\n" == self._switch.stdout.readline()


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _in_thread(function: Callable[[], int]) -> int:
    """Call the function in a thread of its own: the namespace of a thread ends with it, if nothing keeps it open."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    [result] = found
    return result


def _make_namespace() -> int:
    _check(_libc.unshare(_NEW_NAMESPACE))
    return os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)


def _make_device(address: str) -> int:
    """Give the namespace of this thread a device with the address; return what reads and writes its packets."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(device, _SET_DEVICE, struct.pack("16sH", b"lan", _TUN_WITHOUT_HEADER))
    for change in ("link set lo up", f"address add {address}/24 dev lan", "link set lan up"):
        subprocess.run(["ip", *change.split()], check=True)
    return device


def _forward(devices: list[int]) -> None:
    """Forward packets until standard input ends. Each of its lines sets the delay and who is cut off."""
    delay, cut_off = 0.0, set[int]()
    waiting: deque[tuple[float, int, bytes]] = deque()
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([0, *devices], [], [], pause)
        for each in ready:
            if each == 0:
                line = sys.stdin.buffer.readline()
                if not line:
                    return
                delay, numbers = json.loads(line)
                cut_off = set(numbers)
                os.write(1, b"set\n")
                continue
            packet = os.read(each, 65_536)
            target = _target(packet)
            if target in range(len(devices)) and not cut_off & {target, devices.index(each)}:
                waiting.append((time.monotonic() + delay, devices[target], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, device, packet = waiting.popleft()
            os.write(device, packet)


def _target(packet: bytes) -> int:
    """The place of the device to which a packet of IPv4 is sent, -1 for any other packet."""
    return packet[19] - 1 if packet[0] >> 4 == 4 and packet[16:19] == _PREFIX else -1


if __name__ == "__main__":
    _forward([int(number) for number in sys.argv[1:]])
