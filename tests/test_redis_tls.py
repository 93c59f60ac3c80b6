"""Redis over TLS, with an authority of its own: which certificates are accepted, and how others are reported."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from testing import needs
from testing.process import new_key, petstore, petstore_process, serving
from testing.redis_engine import REDIS
from testing.sentinels import PASSWORD, SENTINEL_PASSWORD, Program, watched_redis
from testing.wire import codes

pytestmark = pytest.mark.system

ORDERS = "/v1/store/orders"


class Certificates(NamedTuple):
    """A certificate for 127.0.0.1, its key, and the authority that has signed it; and another authority."""

    certificate: Path
    key: Path
    authority: Path
    other: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    openssl = needs.program("openssl")
    folder = tmp_path_factory.mktemp("tls")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("authority", "other"):
        files = ("-keyout", f"{name}.key", "-out", f"{name}.crt")
        run("req", "-x509", *curve, *files, "-days", "2", "-subj", f"/CN={name}")
    run("req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=redis")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ("-CA", "authority.crt", "-CAkey", "authority.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    run("x509", "-req", "-in", "server.csr", "-out", "server.crt", *signed)
    return Certificates(*[folder / name for name in ("server.crt", "server.key", "authority.crt", "other.crt")])


@pytest.fixture(scope="module")
def redis(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(tmp_path_factory.mktemp("redis"), REDIS, ['save ""'], PASSWORD, certificates[:3])
    yield program
    program.close()


def settings(redis: Program, authority: Path | str, host: str = "127.0.0.1") -> dict[str, str]:
    url = f"rediss://:{PASSWORD}@{host}:{redis.port}/0"
    return {"PETSTORE_REDIS_URL": url, "PETSTORE_REDIS_CA_FILE": str(authority)}


def test_a_redis_with_an_authority_of_its_own_counts(
    tmp_path: Path, redis: Program, certificates: Certificates
) -> None:
    store = tmp_path / "store.db"
    key, _ = new_key(store)
    with serving(store, **settings(redis, certificates.authority)) as server:
        assert {"200": 60, "rate_limit_exceeded": 3} == codes([server.port], key, [("GET", ORDERS)] * 63)
        assert 0 == server.metrics()["petstore_limit_decisions_local_total"]
        doctor = petstore(store, "doctor", "--json", **settings(redis, certificates.authority))
        assert "certificate" not in doctor.stdout


@pytest.mark.parametrize(
    ("authority", "host", "problem"),
    [
        ("", "127.0.0.1", "its certificate is not trusted: self-signed certificate in certificate chain"),
        ("other", "127.0.0.1", "its certificate is not trusted: "),
        ("authority", "localhost", "its certificate is not trusted: Hostname mismatch"),
    ],
)
def test_a_failed_check_of_the_certificate_is_reported_as_one(
    tmp_path: Path, redis: Program, certificates: Certificates, authority: str, host: str, problem: str
) -> None:
    store = tmp_path / "store.db"
    new_key(store)
    environ = settings(redis, getattr(certificates, authority, ""), host)
    done = petstore_process(store, "serve", **environ)
    assert (2, True) == (done.returncode, problem in done.stderr), done.stderr
    doctor = petstore(store, "doctor", **environ)
    assert problem.partition(":")[0] in doctor.stdout
    assert "its authority in PETSTORE_REDIS_CA_FILE" in " ".join(doctor.stdout.split())
    for text in (done.stderr, doctor.stdout):
        assert "not permitted" not in text
        assert PASSWORD not in text


def test_sentinels_and_what_they_watch_are_reached_over_tls(tmp_path: Path, certificates: Certificates) -> None:
    store = tmp_path / "store.db"
    key, _ = new_key(store)
    with watched_redis(REDIS, certificates[:3]) as watched:
        given = {"PETSTORE_REDIS_URL": watched.url, "PETSTORE_REDIS_SENTINEL_PASSWORD": SENTINEL_PASSWORD}
        trusted = {**given, "PETSTORE_REDIS_CA_FILE": str(certificates.authority)}
        with serving(store, **trusted) as server:
            assert {"200": 60, "rate_limit_exceeded": 3} == codes([server.port], key, [("GET", ORDERS)] * 63)
            assert 0 == server.metrics()["petstore_limit_decisions_local_total"]
        untrusted = petstore_process(store, "serve", **given)
        assert (2, True) == (
            untrusted.returncode,
            "the Sentinels cannot be used: its certificate is not trusted" in untrusted.stderr,
        )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "which cannot be read: No such file or directory."),
        ("no certificate", "which has no certificates in PEM."),
    ],
)
def test_a_file_without_authorities_is_named(tmp_path: Path, redis: Program, content: str | None, problem: str) -> None:
    file = tmp_path / "root.crt"
    if content is not None:
        file.write_text(content)
    store = tmp_path / "store.db"
    new_key(store)
    done = petstore_process(store, "serve", **settings(redis, file))
    assert (2, True) == (done.returncode, f"PETSTORE_REDIS_CA_FILE names {file}, {problem}" in done.stderr), done.stderr
