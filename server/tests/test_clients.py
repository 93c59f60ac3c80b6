"""The address of a client: behind trusted proxies, and as the text that is counted (D14)."""

import ipaddress

import pytest

from petstore_server.api.callers import ClientAddress

PROXIES = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8::/32")]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (None, "unknown"),
        ("", "unknown"),
        ("nonsense", "unknown"),
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ('"192.0.2.1" ', "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1:2:3:4%eth0", "fe80::/64"),
        ("2001:db7:1:2:3:4:5:6", "2001:db7:1:2::/64"),
        ("[2001:db7:1:2:3:4:5:6]:80", "2001:db7:1:2::/64"),
        ("[2001:db7::1", "2001:db7::/64"),
        ("fe80::1%" + "z" * 56, "fe80::/64"),  # 64 characters
        ("fe80::1%" + "z" * 57, "unknown"),
    ],
)
def test_an_address_is_counted_however_it_is_written_ipv6_by_its_64(peer: str | None, address: str) -> None:
    assert address == ClientAddress([], "X-Forwarded-For")(peer, {})


@pytest.mark.parametrize(
    ("line", "address"),
    [
        (b"192.0.2.1", "192.0.2.1"),
        (b"192.0.2.9, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
        (b"192.0.2.1,10.0.0.3 , 10.0.0.2,", "192.0.2.1"),
        *[(b"192.0.2.1, %b, 10.0.0.2" % hop, "10.0.0.2") for hop in (b"nonsense", b"_hidden", b"1.2.3", b"9" * 5000)],
        *[(b"192.0.2.1, %b, 10.0.0.2" % hop, "10.0.0.2") for hop in (b"[x]", b"fe80::1%" + b"x" * 100)],
        (b"192.0.2.1, , 10.0.0.2", "192.0.2.1"),
        (b"10.0.0.3, 10.0.0.2", "10.0.0.3"),
        (b"192.0.2.1" + b", 10.0.0.2" * 31, "192.0.2.1"),
        (b"192.0.2.1, 10.0.0.3" + b", 10.0.0.2" * 31, "10.0.0.3"),
        (b"192.0.2.1" + b"," * 31, "192.0.2.1"),
        (b"192.0.2.1" + b"," * 32, "10.0.0.1"),
        (b"192.0.2.1, [2001:db8::1]:443", "192.0.2.1"),
        (b"", "10.0.0.1"),
    ],
)
def test_the_last_address_that_is_not_a_trusted_proxy_is_the_clients(line: bytes, address: str) -> None:
    headers = {b"x-forwarded-for": line, b"forwarded": b"for=198.51.100.1"}
    assert address == ClientAddress(PROXIES, "X-Forwarded-For")("10.0.0.1", headers)
    assert "192.0.2.7" == ClientAddress(PROXIES, "X-Forwarded-For")("192.0.2.7", headers)
    assert "10.0.0.1" == ClientAddress([], "X-Forwarded-For")("10.0.0.1", headers)
    assert "10.0.0.1" == ClientAddress(PROXIES, "X-Forwarded-For")("10.0.0.1", {})


@pytest.mark.parametrize(
    ("line", "address"),
    [
        (b"for=192.0.2.1", "192.0.2.1"),
        (b'proto=https; For = 192.0.2.1;by=10.0.0.1, for="10.0.0.2:80"', "192.0.2.1"),
        (b"for=192.0.2.1, by=10.0.0.2", "10.0.0.1"),
        (b"for=192.0.2.1, for=_hidden, for=10.0.0.2", "10.0.0.2"),
        (b'for="[2001:db7:1:2::3]:80"', "2001:db7:1:2::/64"),
        (b"for=192.0.2.1" + b", for=10.0.0.2" * 31, "192.0.2.1"),
        (b"for=192.0.2.1, for=10.0.0.3" + b", for=10.0.0.2" * 31, "10.0.0.3"),
        (b"for=192.0.2.1, " + b"proto=https;" * 8 + b"for=10.0.0.2", "192.0.2.1"),
        (b"for=192.0.2.1, " + b"proto=https;" * 9 + b"for=10.0.0.2", "10.0.0.1"),
    ],
)
def test_forwarded_names_each_hop_with_for(line: bytes, address: str) -> None:
    headers = {b"forwarded": line, b"x-forwarded-for": b"198.51.100.1"}
    assert address == ClientAddress(PROXIES, "Forwarded")("10.0.0.1", headers)
