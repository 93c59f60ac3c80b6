"""Where webhooks may send: hostile URLs and addresses, each refused with its reason (D24)."""

import ipaddress
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petstore_server.webhooks.addresses import Addresses, AddressRefused
from testing.subprocesses import PATIENCE
from testing.webhooks import named

SCHEME = "it must begin with https://"
CHARACTERS = "visible ASCII characters"
HOST = "it must name a host"
NUMBER = "it must have an IPv4 address in its usual form"
PERCENT = "no percent sign"
USER = "no user name or password"
PARSED = "it cannot be parsed"
PORT = "its port must be"

URLS = {
    "http://shop.example/": SCHEME,
    "ftp://shop.example/": SCHEME,
    "file:///etc/passwd": SCHEME,
    "//shop.example/": SCHEME,
    "shop.example": SCHEME,
    "": CHARACTERS,
    "https:shop.example": HOST,
    "https:///shop.example": HOST,
    "https://": HOST,
    "https://./": HOST,
    "https://shop..example/": HOST,
    "https://-shop.example/": HOST,
    "https://shop.example;127.0.0.1/": HOST,
    f"https://{'a' * 64}.example/": HOST,
    f"https://{'a.' * 127}example/": HOST,
    f"https://shop.example/{'a' * 2048}": CHARACTERS,
    "https://shop.example/\r\nHost: other.example": CHARACTERS,
    "https://127.0.0.1\t.shop.example/": CHARACTERS,
    "https://shop.example/\0": CHARACTERS,
    "https://shop.example\\@127.0.0.1/": CHARACTERS,
    "https://１２７.0.0.1/": CHARACTERS,
    "https://127。0。0。1/": CHARACTERS,
    "https://shöp.example/": CHARACTERS,
    "https://127.0.0.%31/": PERCENT,
    "https://127.0.0.1%00.shop.example/": PERCENT,
    "https://[::1%25lo]/": PERCENT,
    "https://[2606:4700::1111%eth0]/": PERCENT,
    "https://partner:password@shop.example/": USER,
    "https://@shop.example/": USER,
    "https://shop.example:443@127.0.0.1/": USER,
    "https://shop.example/#": "no fragment",
    "https://127.0.0.1#.shop.example/": "no fragment",
    "https://2130706433/": NUMBER,
    "https://0x7f000001/": NUMBER,
    "https://0x7f.0.0.1/": NUMBER,
    "https://017700000001/": NUMBER,
    "https://0177.0.0.1/": NUMBER,
    "https://127.1/": NUMBER,
    "https://0/": NUMBER,
    "https://127.0.0.1./": NUMBER,
    "https://2130706433./": NUMBER,
    "https://256.256.256.256/": NUMBER,
    "https://1.2.3.4.5/": NUMBER,
    "https://shop.example.1/": NUMBER,
    "https://[::1/": PARSED,
    "https://[::1]x/": PARSED,
    "https://[127.0.0.1]/": PARSED,
    "https://[shop.example]/": PARSED,
    "https://[::ffff:1.2.3]/": PARSED,
    "https://shop.example:0/": PORT,
    "https://shop.example:65536/": PARSED,
    "https://shop.example:-1/": PARSED,
    f"https://shop.example/?key=pso_live_{'a' * 33}": "it must not contain an API key",
}

PRIVATE = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "127.0.0.1", "127.255.255.254", "172.16.0.1", "172.31.255.255", "192.168.0.1"),
    *("169.254.0.1", "169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "168.63.129.16"),
    *("192.0.0.1", "192.0.0.8", "192.0.0.9", "192.0.0.170", "192.0.0.192", "192.0.2.1", "192.88.99.1"),
    *("198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250"),
    *("240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::7f00:1", "::10.0.0.1", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::ffff:10.0.0.1"),
    *("::ffff:0:127.0.0.1", "::fffe:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::8.8.8.8", "64:ff9b:1::7f00:1"),
    *("100::1", "100:0:0:1::1", "1::1", "4000::1", "5f00::1", "8000::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254"),
    *("fe00::1", "fe80::1", "fe80::a9fe:a9fe", "fec0::1", "ff02::1", "ff0e::1"),
    *("2001::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "2001:2::1", "2001:10::1", "2001:20::1", "2001:30::1"),
    *("2001:1::1", "2001:db8::1", "2002:7f00:1::1", "2002:a9fe:a9fe::1", "3fff::1"),
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "::ffff:8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001::200e"]
PARTS = ["shop.example", "1.1.1.1", "[2606:4700::1111]", "EXAMPLE", *"0123456789abxz.:/?#@%[]\\~'\"<>|^`{}&=;,!$*()_-+"]


def refusal(url: str, allowed: Addresses) -> str:
    with pytest.raises(AddressRefused) as refused:
        allowed.destination(url)
    return str(refused.value)


def url_of(address: str) -> str:
    return f"https://[{address}]/" if ":" in address else f"https://{address}/"


@pytest.mark.parametrize("url", URLS)
def test_a_hostile_url_is_refused_with_its_reason(url: str) -> None:
    assert URLS[url] in refusal(url, Addresses())


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=6))
def test_what_a_url_leads_to_is_unambiguous(parts: list[str]) -> None:
    allowed = Addresses()
    with suppress(AddressRefused):
        found = allowed.destination("https://" + "".join(parts))
        assert re.fullmatch(r"/[!-~]*", found.target)
        host = f"[{found.host}]" if ":" in found.host else found.host
        assert found == allowed.destination(f"https://{host}:{found.port}{found.target}")


@pytest.mark.parametrize("address", PRIVATE)
async def test_an_address_that_is_not_public_is_refused_in_a_url_and_of_a_name(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = Addresses()
    assert "its address is not public" == refusal(url_of(address), allowed)
    for found in ([address], ["8.8.8.8", address], [address, "8.8.8.8"]):
        named(monkeypatch, found)
        with pytest.raises(AddressRefused, match="its name has an address that is not public"):
            await allowed.resolve(allowed.destination("https://shop.example/"))


@pytest.mark.parametrize("address", PUBLIC)
async def test_a_public_address_may_be_reached_over_tls_only(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = Addresses([ipaddress.ip_network("10.0.0.0/8")])
    assert 443 == allowed.destination(url_of(address)).port
    names = named(monkeypatch, [address])
    assert [address] == await allowed.resolve(allowed.destination("https://SHOP.example:8443/orders?key=1"))
    assert ["shop.example"] == names.asked
    without_tls = "its address is in no network that the operator allows, so it must begin with https://"
    assert without_tls == refusal(url_of(address).replace("https", "http"), allowed)
    with pytest.raises(AddressRefused, match="so it must begin with https://"):
        await allowed.resolve(allowed.destination("http://shop.example/"))


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3"])
async def test_a_network_that_the_operator_allows_may_be_reached_also_without_tls(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = Addresses([ipaddress.ip_network("10.1.0.0/16")])
    named(monkeypatch, [address])
    for scheme, port in (("http", 80), ("https", 443)):
        assert port == allowed.destination(url_of(address).replace("https", scheme)).port
        assert [address] == await allowed.resolve(allowed.destination(f"{scheme}://shop.example/"))
    for other in ("10.2.0.1", "127.0.0.1", "::ffff:10.2.0.1", "2002:a01:203::1", "64:ff9b::10.1.2.3", "::10.1.2.3"):
        assert "its address is not public" == refusal(url_of(other), allowed)
    named(monkeypatch, [address, "10.2.0.1"])
    with pytest.raises(AddressRefused, match="its name has an address that is not public"):
        await allowed.resolve(allowed.destination("https://shop.example/"))


async def test_a_name_without_an_address_is_refused_only_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    each: list[list[str] | Exception] = [[], OSError(-2, "Name or service not known"), UnicodeError("label too long")]
    for results in each:
        named(monkeypatch, results)
        allowed = Addresses()
        destination = allowed.destination("https://shop.example/")
        assert [] == await allowed.check(destination)
        with pytest.raises(AddressRefused, match="its name cannot be resolved"):
            await allowed.resolve(destination)


HANGING = """
import asyncio, time
from petstore_server.webhooks import addresses

async def look_up():
    allowed = addresses.Addresses()
    async with asyncio.timeout(0.1):
        await allowed.resolve(allowed.destination("https://shop.example/"))

addresses.socket.getaddrinfo = lambda *_, **__: time.sleep(3_600)
try:
    asyncio.run(look_up())
except TimeoutError:
    print("given up")
"""


def test_a_look_up_that_hangs_does_not_delay_the_end_of_the_process() -> None:
    command = [sys.executable, "-c", HANGING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "given up\n" == done.stdout
