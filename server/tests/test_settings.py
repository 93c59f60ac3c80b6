"""Settings: an unknown name or an invalid value aborts the start with one line that names it."""

import re
import resource
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from petstore_server.domain.roles import Role
from petstore_server.runtime.backend import allowed_connections
from petstore_server.runtime.opening import rows_at_once
from petstore_server.runtime.usage import counts_elsewhere
from petstore_server.settings import SETTINGS, SettingsError, read_settings
from petstore_server.settings.values import UNPARSABLE_URL, describe_url
from testing.stores import locked


def test_the_defaults_are_valid() -> None:
    settings = read_settings({"PATH": "/bin", "HOME": "/root"})
    assert ("sqlite:///petstore.db", None) == (settings.database_url, settings.redis_url)
    assert ("127.0.0.1", 8080, 8081) == (settings.host, settings.port, settings.admin_port)
    assert datetime(2027, 12, 1, tzinfo=UTC) == settings.pets_sunset


def test_the_key_of_the_client_is_ignored() -> None:
    read_settings({"PETSTORE_API_KEY": "secret"})


@pytest.mark.parametrize("service", ["PETSTORE", "PETSTORE_ADMIN", "PETSTORE_REDIS", "PETSTORE_POSTGRES_PRIMARY"])
def test_what_kubernetes_injects_for_services_is_ignored(service: str) -> None:
    injected = {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "8080",
        "SERVICE_PORT_HTTP_API": "8080",
        "PORT": "tcp://10.0.0.1:8080",
        "PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "PORT_8080_TCP_PROTO": "tcp",
        "PORT_8080_TCP_PORT": "8080",
        "PORT_8080_TCP_ADDR": "10.0.0.1",
        "PORT_53_UDP": "udp://10.0.0.1:53",
    }
    assert read_settings({}) == read_settings({f"{service}_{name}": text for name, text in injected.items()})


def test_a_port_that_the_pod_sets_itself_is_used() -> None:
    environ = {"PETSTORE_PORT": "9000", "PETSTORE_ADMIN_PORT": "tcp://10.0.0.1:8081", "PETSTORE_SERVICE_PORT": "80"}
    settings = read_settings(environ)
    assert (9000, 8081) == (settings.port, settings.admin_port)


def test_an_option_is_never_taken_for_what_kubernetes_injects() -> None:
    with pytest.raises(SettingsError, match="PETSTORE_PORT must be a whole number"):
        read_settings({"PETSTORE_PORT": "9000"}, {"PETSTORE_PORT": "tcp://10.0.0.1:8080"})


DATABASE, SECRET_URL = "PETSTORE_DATABASE_URL", "postgresql://me:s3cr3t@db.internal/petstore"


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_is_read_from_a_file_without_the_line_end(tmp_path: Path, end: str) -> None:
    (tmp_path / "url").write_bytes(f"{SECRET_URL}{end}".encode())
    file = str(tmp_path / "url")
    assert SECRET_URL == read_settings({f"{DATABASE}_FILE": file}).database_url
    assert SECRET_URL == read_settings({f"{DATABASE}_FILE": file, DATABASE: ""}).database_url
    assert "sqlite:///x.db" == read_settings({f"{DATABASE}_FILE": file}, {DATABASE: "sqlite:///x.db"}).database_url


def test_printed_settings_have_no_secret() -> None:
    secret = "s3cr3t" * 8
    given = {
        DATABASE: f"postgresql://me:{secret}@x/y",
        "PETSTORE_REDIS_URL": f"redis+sentinel://:{secret}@x/main/0",
        "PETSTORE_REDIS_SENTINEL_PASSWORD": secret,
        "PETSTORE_WEBHOOK_SECRET": secret,
        "PETSTORE_WEBHOOK_PROXY": f"http://me:{secret}@x",
    }
    assert {setting.name for setting in SETTINGS if setting.secret} == given.keys()
    assert secret not in repr(read_settings(given))


def test_every_setting_that_may_hold_a_secret_may_be_in_a_file_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    secret = {setting.name for setting in SETTINGS if setting.secret}
    urls = {DATABASE, "PETSTORE_REDIS_URL", "PETSTORE_WEBHOOK_PROXY"}
    assert {*urls, "PETSTORE_REDIS_SENTINEL_PASSWORD", "PETSTORE_WEBHOOK_SECRET"} == secret
    for setting in SETTINGS:
        with pytest.raises(SettingsError) as caught:
            read_settings({f"{setting.name}_FILE": str(tmp_path / "file")})
        assert setting.secret != ("is not a setting of this service" in str(caught.value))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, r"names \S+/url, which cannot be read: No such file or directory\.$"),
        ("", r"names \S+/url, which is empty\.$"),
        ("\n", r"names \S+/url, which is empty\.$"),
        ("s3cr3t" * 4000, r"names \S+/url, which has more than 16 KiB\.$"),
        ("s" + "\u00e9" * 8192, r"names \S+/url, which has more than 16 KiB\.$"),  # fewer characters
        ("s3cr3t\udcff", r"names \S+/url, which is not text in UTF-8\.$"),
        ("sqlite:///s3cr3t\0", r"names \S+/url, which holds the character U\+0000; write it in UTF-8\.$"),
        ("mysql://me:s3cr3t@x", r"must be sqlite:///FILE, .*; it is the text of \S+/url\.$"),
        (f"{SECRET_URL}\n\n", r"must be a valid URL; .*; it is the text of \S+/url\.$"),
    ],
)
def test_an_error_names_the_file_of_a_secret_and_never_its_content(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    file = tmp_path / "url"
    if content is not None:
        file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(SettingsError, match=f"^{DATABASE}.*{problem}") as caught:
        read_settings({f"{DATABASE}_FILE": str(file)})
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://db.example:6379/abc",
        "redis://db.example:6379/1/2",
        "redis://db.example:6379/-1",
        "redis://db.example:6379/%31",
        "redis://db.example:6379/9999999",
        "redis://db.example:6379/0#1",
        "redis://db.example:0/0",
        "redis://one.example,two.example:6379/0",
        "redis://db.example/1?db=2",
        "redis://db.example?db=1&db=2",
        "redis://db.example?db=one",
        "redis://db.example/0?db=",
        "redis://db.example/0?decode_responses=true",
        "redis+sentinel://one.example:26379",
        "redis+sentinel://one.example/",
        "redis+sentinel:///shop/0",
        "redis+sentinel://one.example,,two.example/shop/0",
        "redis+sentinel://one.example/shop/zero",
        "redis+sentinel://one.example/shop/0/1",
        "sentinel://one.example/shop/0",
        "unix://run/redis.sock",
        "unix://",
        "unix:///run/redis.sock?db=-1",
    ],
)
def test_a_redis_url_that_is_not_one_database_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^PETSTORE_REDIS_URL must be redis://HOST:PORT/0 with one host"):
        read_settings({"PETSTORE_REDIS_URL": url})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PETSTORE_REDIS_URL", "redis://:{}@db.example/0"),
        ("PETSTORE_REDIS_SENTINEL_PASSWORD", "{}"),
        ("PETSTORE_WEBHOOK_SECRET", "0123456789abcdef0123456789abcdef{}"),
        ("PETSTORE_BASE_URL", "https://{}/v1"),
    ],
)
def test_a_setting_that_is_not_text_in_utf8_is_refused_and_no_part_of_a_secret_is_shown(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name} must be text in UTF-8; it is ") as caught:
        read_settings({name: text.format("s3cr3t\udcff")})
    assert not re.search("udcff|position", str(caught.value))


SIGN_IN = {"PETSTORE_CONSOLE_USER_HEADER": "X-Forwarded-Email", "PETSTORE_CONSOLE_PROXIES": "10.0.0.5"}


def test_the_roles_of_groups_are_read_in_their_order() -> None:
    roles = " admin:pets admins ,operator:team:ops, ,viewer:* "
    settings = read_settings(
        SIGN_IN | {"PETSTORE_CONSOLE_GROUPS_HEADER": "X-Forwarded-Groups", "PETSTORE_CONSOLE_ROLES": roles}
    )
    assert (("admin", "pets admins"), ("operator", "team:ops"), ("viewer", None)) == settings.console_roles
    assert ("x-forwarded-email", "x-forwarded-groups") == (settings.console_user_header, settings.console_groups_header)
    for role in Role:  # this table has its own list: settings know nothing of the domain
        assert ((role, None),) == read_settings(SIGN_IN | {"PETSTORE_CONSOLE_ROLES": f"{role}:*"}).console_roles


@pytest.mark.parametrize(
    "url",
    [
        "redis://db.example",
        "redis:///0",
        "redis://:6379/0",
        "redis://db.example/0?protocol=3&socket_timeout=2",
        "redis://db.example/",
        "redis://petstore:se%2Fcret@db.example:6379/15",
        "redis://:se@c:ret@[2001:db8::1]:65535/0",
        "redis://db.example/?db=3&password=a=b&username=petstore",
        "rediss://db.example:6380/0?ssl_ca_certs=/etc/petstore/root.crt&ssl_check_hostname=true",
        "redis://db.example/0?socket_keepalive=true&health_check_interval=30&client_name=shop",
        "redis+sentinel://one.example/shop",
        "redis+sentinel://one.example:26379,two.example:26380,[2001:db8::1]:26379/my-shop/3",
        "rediss+sentinel://petstore:se%2Fcret@one.example,two.example/shop/0?socket_keepalive=true",
        "unix:///run/redis/redis.sock",
        "unix://petstore:secret@/run/redis/redis.sock?db=2",
    ],
)
def test_a_redis_url_may_have_what_the_driver_reads_as_it_is_meant(url: str) -> None:
    assert url == read_settings({"PETSTORE_REDIS_URL": url}).redis_url


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        ("::ffff:127.0.0.0/104", ["127.0.0.0/8"]),
        ("::ffff:10.0.0.9", ["10.0.0.9/32"]),
        ("::ffff:0:0/96", ["0.0.0.0/0"]),
        (" 10.0.0.0/8 ,, 2001:db8::/32,", ["10.0.0.0/8", "2001:db8::/32"]),
        ("::/0", ["::/0"]),
        ("", []),
    ],
)
def test_a_network_of_mapped_addresses_is_one_of_ipv4(text: str, networks: list[str]) -> None:
    assert networks == [str(each) for each in read_settings({"PETSTORE_TRUSTED_PROXIES": text}).trusted_proxies]


@pytest.mark.parametrize(
    ("url", "described"),
    [
        ("sqlite:////var/lib/petstore/store.db", "sqlite:////var/lib/petstore/store.db"),
        ("postgresql://me:secret@db.internal:5432/petstore?sslmode=require", "postgresql://db.internal:5432/petstore"),
        ("postgresql://me:secret@one:5432,two:5433/petstore", "postgresql://one:5432,two:5433/petstore"),
        ("postgresql:///petstore?host=/run/postgresql&password=secret", "postgresql:///petstore"),
        ("postgresql://[2001:db8::1]:5432/petstore", "postgresql://[2001:db8::1]:5432/petstore"),
        ("redis://:secret@redis.internal:6379/0", "redis://redis.internal:6379/0"),
        ("redis://:se@cret@redis.internal:6379/0", "redis://redis.internal:6379/0"),
        ("rediss://redis.internal/0?password=secret", "rediss://redis.internal/0"),
        ("redis+sentinel://me:secret@one:26379,two:26379/shop/0", "redis+sentinel://one:26379,two:26379/shop/0"),
        ("unix:///run/redis.sock?db=1&password=secret", "unix:///run/redis.sock"),
    ],
)
def test_a_url_is_described_without_its_secrets(url: str, described: str) -> None:
    assert described == describe_url(url)


UNPARSABLE = [
    "postgresql://me:SEC/RET@host/db",
    "postgresql://me:5?SECRET@host/db",
    "postgresql://me:5#SECRET@host/db",
    "postgresql://me:5/SECRET@host/db",
    "postgresql://host:SECRET/db",
    "redis://:SECRET",
    "redis://host/0?password=SEC@RET",
    "SECRET",
    "redis//:SECRET@host",
    "redis://host/SEC RET",
]
UNUSABLE = [
    "postgresql://u:SECRET%zz@host/db",
    "postgresql://u:SECRET%@host/db",
    "postgresql://u:SECRET%00@host/db",
    "postgresql://u:SEC RET@host/db",
    "postgresql://u:SEC\nRET@host/db",
    "postgresql://u@host/db?password=SECRET%",
    "sqlite:///x.db?password=SECRET",
    "sqlite:////srv/x.db?mode=ro&key=SECRET",
]


@pytest.mark.parametrize("name", ["PETSTORE_DATABASE_URL", "PETSTORE_REDIS_URL", "PETSTORE_BASE_URL"])
@pytest.mark.parametrize("url", UNPARSABLE + UNUSABLE)
def test_no_part_of_a_url_that_is_refused_is_shown(name: str, url: str) -> None:
    assert UNPARSABLE_URL == describe_url(url) or url in UNUSABLE
    with pytest.raises(SettingsError) as caught:
        read_settings({name: url})
    assert str(caught.value).startswith(name)
    assert "\n" not in str(caught.value)
    for shown in (str(caught.value), describe_url(url)):
        assert not re.search("SEC|RET", shown)


BASE_URLS = ["https://x/v1", "HTTP://x:8080/api/v1", "https://[::1]:8080/v1"]
NO_BASE_URLS = [
    "https://x/v1?",
    "https://x/v1#",
    "https://x/v1?a=b",
    "https://x/a b/v1",
    'https://x"/v1',
    "https://<b>/v1",
]
NO_BASE_URLS += ["https://x:65536/v1", "https://x:0/v1", "https://x:a/v1", "https://[x/v1", "https:///v1", "ftp://x/v1"]


@pytest.mark.parametrize("name", ["PETSTORE_BASE_URL", "PETSTORE_STAGING_BASE_URL"])
def test_a_base_address_is_a_url_that_a_contract_may_name(name: str) -> None:
    read = {setting.name: setting.read for setting in SETTINGS}[name]
    assert BASE_URLS == [read(f"{url}{slash}") for url, slash in zip(BASE_URLS, ("", "/", ""), strict=True)]
    for url in NO_BASE_URLS:
        with pytest.raises(SettingsError, match=f"^{name} must be an http:// or https:// URL without "):
            read_settings({name: url})


RANGES = {
    setting.name: [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", setting.read.__doc__)]
    for setting in SETTINGS
    if setting.read.__doc__ and setting.name != "PETSTORE_WEBHOOK_SECRET"
}


@pytest.mark.parametrize("name", RANGES)
def test_the_documented_range_of_a_setting_is_the_one_that_holds(name: str) -> None:
    [read] = [setting.read for setting in SETTINGS if setting.name == name]
    lowest, highest = RANGES[name]
    assert [lowest, highest] == [read(str(lowest)), read(str(highest))]
    for wrong in (highest + 1, lowest - 1):
        with pytest.raises(SettingsError, match=f"{name} must be"):
            read_settings({name: str(wrong)})


@pytest.mark.parametrize("host", ["*", "", "[::1]", "127.0.0.1:80", "::1:x", "a..b", "a b"])
def test_what_is_neither_an_address_nor_a_host_name_is_refused(host: str) -> None:
    with pytest.raises(SettingsError, match=r"^PETSTORE_HOST must be an address or a host name"):
        read_settings({"PETSTORE_HOST": host})


def test_the_secret_the_networks_and_the_proxy_of_webhooks_are_read() -> None:
    for text in ("s" * 32, "é" * 16):
        assert text == read_settings({"PETSTORE_WEBHOOK_SECRET": text}).webhook_secret
    assert None is read_settings({"PETSTORE_WEBHOOK_SECRET": ""}).webhook_secret is read_settings({}).webhook_secret
    networks = read_settings({"PETSTORE_WEBHOOK_NETWORKS": "10.1.0.0/16, fd00::/8,192.0.2.1"}).webhook_networks
    assert ["10.1.0.0/16", "fd00::/8", "192.0.2.1/32"] == [*map(str, networks)]
    assert () == read_settings({}).webhook_networks
    proxy = "http://me:s3cr3t@proxy.internal:3128"
    assert proxy == read_settings({"PETSTORE_WEBHOOK_PROXY": proxy}).webhook_proxy


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://", "name one host"),
        ("http://me:s3cr3t@:3128", "name one host"),
        ("http://a,b:3128", "name one host"),
        ("http://a%20b:3128", "name one host"),
        ("http://me:s3cr3t\u00e9@proxy.internal", "percent-encode"),
        ("http://proxy.internal:0", "a port"),
        ("https://me:s3cr3t@[::1]:65536", "a port"),
    ],
)
def test_a_proxy_to_which_none_can_connect_is_refused(url: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=f"PETSTORE_WEBHOOK_PROXY must .*{problem}"):
        read_settings({"PETSTORE_WEBHOOK_PROXY": url})


@pytest.mark.parametrize(
    ("wanted", "limits", "raised", "allowed"),
    [
        (0, (1_024, 4_096), [(4_096, 4_096)], 3_840),
        (0, (1_024, 100_000), [(10_256, 100_000)], 10_000),
        (0, (1_024, resource.RLIM_INFINITY), [(10_256, resource.RLIM_INFINITY)], 10_000),
        (0, (10_256, 10_256), [], 10_000),
        (0, (100, 257), [(257, 257)], 1),
        (0, (100, 100), [(100, 100)], 1),
        (20_000, (1_024, 100_000), [(20_256, 100_000)], 20_000),
        (3_840, (1_024, 4_096), [(4_096, 4_096)], 3_840),
        (3_841, (1_024, 4_096), [(4_096, 4_096)], None),
    ],
)
def test_the_limit_on_open_files_is_raised_for_the_connections_and_bounds_them(
    monkeypatch: pytest.MonkeyPatch,
    wanted: int,
    limits: tuple[int, int],
    raised: list[tuple[int, int]],
    allowed: int | None,
) -> None:
    seen = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: seen[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, changed: seen.append(changed))
    message = "^PETSTORE_MAX_CONNECTIONS is 3841, but the limit on open files allows 3840: raise that limit "
    with nullcontext() if allowed else pytest.raises(SettingsError, match=message):
        assert allowed == allowed_connections(wanted)
    assert [limits, *raised] == seen


def test_transactions_of_an_import_are_short_where_requests_may_wait_and_only_a_redis_may_have_the_usage(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    settings = read_settings({"PETSTORE_DATABASE_URL": f"sqlite:///{path}"})
    assert (True, False) == (rows_at_once(settings) > 1, counts_elsewhere(settings))
    for shared in (False, True):
        with locked(path, shared=shared):
            assert (1, shared) == (rows_at_once(settings), counts_elsewhere(settings))
    settings = read_settings({"PETSTORE_DATABASE_URL": "postgresql://db/petstore"})
    assert (1, True) == (rows_at_once(settings), counts_elsewhere(settings))
    assert not counts_elsewhere(replace(settings, redis_url="redis://db/0"))
