"""The page about receiving webhooks: its receivers keep an equal copy, and refuse what the service has not signed."""

import hmac
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx2
import pytest
from standardwebhooks import Webhook

from petstore_server.domain.webhooks import MAX_GRACE, RETRY_SECONDS
from testing import needs
from testing.browser import served_demo
from testing.documents import ROOT, SOURCE, block
from testing.process import (
    EVERY_SCOPE,
    UNLIMITED,
    new_key,
    petstore,
    petstore_json,
    put_orders,
    serving,
)
from testing.subprocesses import PATIENCE, await_ready, free_port, kill, within

PAGE = SOURCE / "api" / "guide" / "webhooks.md"
MODULES = Path(sys.prefix) / "npm" / "node_modules"
SETTINGS = {
    "PETSTORE_WEBHOOK_SECRET": "a text of at least 32 bytes, for tests",
    "PETSTORE_WEBHOOK_NETWORKS": "127.0.0.0/8",
}
SECRET, OTHER = "whsec_" + 43 * "A" + "=", "whsec_" + 43 * "B" + "="
SUFFIXES = {"python": "py", "javascript": "mjs", "php": "php"}

in_each_language = pytest.mark.parametrize(
    "language", ["python", *(pytest.param(name, marks=pytest.mark.system) for name in ("javascript", "php"))]
)

Copy = dict[int, dict[str, Any]]


class Receiver:
    """A receiver of the page in one language, which keeps its copy in the folder."""

    def __init__(self, language: str, folder: Path) -> None:
        self.language = language
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/webhooks"
        self.script = folder / f"receiver.{SUFFIXES[language]}"
        self.script.write_text(block(PAGE, "receiver", language))

    @contextmanager
    def running(self, secret: str = SECRET) -> Iterator[None]:
        """Run it with this secret; killed at the end."""
        log = self.folder / "receiver.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                self._command(), cwd=self.folder, env=self._environ(secret), stdout=out, stderr=out
            )
        try:
            await_ready(process, self._accepts, log)
            yield
            assert process.poll() is None, log.read_text()
        finally:
            kill(process)

    def ended(self, secret: str) -> subprocess.CompletedProcess[str]:
        """Run it with this text until it ends by itself."""
        return subprocess.run(
            self._command(), cwd=self.folder, env=self._environ(secret), capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    def _environ(self, secret: str) -> dict[str, str]:
        return {**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(self.port)}

    def _command(self) -> list[str]:
        if self.language == "python":
            return [sys.executable, str(self.script)]
        if self.language == "php":
            return [needs.program("php", "php-cli"), "-S", f"127.0.0.1:{self.port}", str(self.script)]
        if not (MODULES / "standardwebhooks").is_dir():
            needs.missing("standardwebhooks of npm is missing: make .venv/.npm")
        if not (self.folder / "node_modules").exists():
            (self.folder / "node_modules").symlink_to(MODULES)
        return [needs.program("node", "nodejs"), str(self.script)]

    def _accepts(self) -> bool:
        with closing(socket.socket()) as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def post(self, headers: Mapping[str, str], body: bytes | str) -> int:
        """Send a request; return the status of the response."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            sent = {name: value.encode("latin-1") for name, value in headers.items()}
            connection.request("POST", "/webhooks", body.encode() if isinstance(body, str) else body, sent)
            return connection.getresponse().status

    def copy(self) -> Copy:
        """The orders of its copy, by their identifiers."""
        if self.language == "python":
            with closing(sqlite3.connect(self.folder / "copy.db")) as database:
                rows = database.execute("SELECT id, record FROM copied_orders")
                return {number: json.loads(text) for number, text in rows}
        file = self.folder / "copy.json"
        kept = json.loads(file.read_text() or "null") if file.exists() else None
        return {int(number): order for number, order in dict((kept or {}).get("orders") or {}).items()}


@pytest.fixture(name="receiver")
def _receiver(language: str, tmp_path: Path) -> Receiver:
    folder = tmp_path / "receiver"
    folder.mkdir()
    return Receiver(language, folder)


def message(kind: str, **data: Any) -> str:
    return json.dumps({"type": kind, "timestamp": "2026-11-29T09:00:00Z", "data": data})


def order(number: int, status: str, microsecond: int = 0) -> dict[str, Any]:
    at = datetime(2026, 11, 29, 9, tzinfo=UTC).replace(microsecond=microsecond).isoformat()
    return {"id": number, "petId": 1, "status": status, "updatedAt": at.replace("+00:00", "Z")}


def changed(*orders: dict[str, Any]) -> str:
    return message("orders.changed", orders=orders, more=False, next="token")


def signed(body: str, name: str, *secrets: str, at: float = 0.0) -> dict[str, str]:
    """The headers of a message, signed with each secret; `at` so many seconds from now."""
    sent = datetime.fromtimestamp(int(time.time() + at), UTC)
    signatures = [Webhook(secret).sign(name, sent, body) for secret in secrets or (SECRET,)]
    return {
        "webhook-id": name,
        "webhook-timestamp": str(int(sent.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


@in_each_language
def test_a_receiver_refuses_what_is_forged_altered_or_old_and_goes_on(receiver: Receiver) -> None:
    body = changed(order(1, "pending"))
    good = signed(body, "a")
    refused: list[tuple[dict[str, str], str]] = [
        (signed(body, "a", OTHER), body),
        (good, body.replace("pending", "shipped")),
        ({**good, "webhook-id": "b"}, body),
        ({**good, "webhook-timestamp": str(int(good["webhook-timestamp"]) + 1)}, body),
        (signed(body, "a", at=-310), body),
        (signed(body, "a", at=310), body),
        *(({**good, "webhook-signature": text}, body) for text in ("", "v1", "v1,", "v1,?", "v2,AAAA", "v1 , ,", "é")),
        *(({**good, "webhook-timestamp": text}, body) for text in ("", "-1", "1e9999", "now")),
        *(({key: text for key, text in good.items() if key != name}, body) for name in good),
        ({}, ""),
    ]
    with receiver.running():
        for headers, text in refused:
            assert 401 == receiver.post(headers, text), headers
        assert 401 == receiver.post(good, body.encode() + b"\xff")
        assert {} == receiver.copy()
        assert 204 == receiver.post({name.title(): value for name, value in good.items()}, body)
        assert {1: order(1, "pending")} == receiver.copy()


@pytest.mark.parametrize("language", SUFFIXES)
def test_a_receiver_uses_neither_the_store_of_the_readme_nor_the_name_of_one_of_its_tables(receiver: Receiver) -> None:
    """In a checkout of the service, `orders.reset` would empty the store."""
    (store,) = set(re.findall(r"sqlite:///([\w.]+)", (ROOT / "README.md").read_text()))
    program = receiver.script.read_text()
    assert store not in program
    assert re.findall(r"\bcopy\.(?:db|json)\b", program)
    migrations = [file.read_text() for file in (SOURCE / "engines" / "migrations" / "sqlite").glob("*.sql")]
    tables = set(re.findall(r"CREATE TABLE (\w+)", "".join(migrations)))
    assert "orders" in tables
    assert set() == tables & set(re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", program))


@pytest.mark.parametrize("language", ["python", pytest.param("javascript", marks=pytest.mark.system)])
@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_…", SECRET[:-2], "A" * 44])
def test_a_receiver_with_what_is_not_a_secret_ends_with_one_line(receiver: Receiver, secret: str) -> None:
    done = receiver.ended(secret)
    line = "WEBHOOK_SECRET is not the secret of a webhook: whsec_ and 44 characters.\n"
    assert (1, line) == (done.returncode, done.stderr)


@pytest.mark.system
@pytest.mark.parametrize("language", ["php"])  # the others do not start
@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_…"])
def test_a_receiver_without_its_secret_accepts_nothing(receiver: Receiver, secret: str) -> None:
    body = changed(order(1, "pending"))
    headers = signed(body, "a")
    content = f"a.{headers['webhook-timestamp']}.{body}".encode()
    signature = "v1," + b64encode(hmac.digest(b"", content, "sha256")).decode()
    with receiver.running(secret):
        assert 500 == receiver.post({**headers, "webhook-signature": signature}, body)
    assert {} == receiver.copy()


@in_each_language
def test_a_receiver_accepts_either_of_two_signatures(receiver: Receiver) -> None:
    for each, secrets in enumerate([(SECRET, OTHER), (OTHER, SECRET)], 1):
        body = changed(order(each, "pending"))
        with receiver.running():
            assert 204 == receiver.post(signed(body, f"both-{each}", *secrets), body)
            assert 401 == receiver.post(signed(body, f"other-{each}", OTHER), body)
    assert {1, 2} == receiver.copy().keys()


@in_each_language
def test_a_receiver_applies_an_id_once_and_keeps_the_later_state_of_an_order_also_after_a_restart(
    receiver: Receiver,
) -> None:
    first, repeated = changed(order(1, "shipped", 100), order(2, "pending")), changed(order(2, "cancelled", 900))
    with receiver.running():
        assert 204 == receiver.post(signed(first, "a"), first)
    with receiver.running():
        assert 204 == receiver.post(signed(repeated, "a"), repeated)
        late = changed(order(1, "pending"), order(3, "pending"))  # 09:00:00Z is before 09:00:00.000100Z
        assert 204 == receiver.post(signed(late, "b"), late)
        assert {1: "shipped", 2: "pending", 3: "pending"} == _statuses(receiver)
        same = changed(order(1, "cancelled", 100))  # as it is now
        assert 204 == receiver.post(signed(same, "c"), same)
        assert "cancelled" == _statuses(receiver)[1]


@in_each_language
def test_a_receiver_applies_no_message_again_that_was_repeated_with_a_second_id(receiver: Receiver) -> None:
    reset = message("orders.reset", next="token")
    with receiver.running():
        headers = signed(reset, "a")
        assert 204 == receiver.post(headers, reset)
        body = changed(order(1, "pending"))
        assert 204 == receiver.post(signed(body, "b"), body)
        for repeated in ({"Webhook-Id": "c", **headers}, {**headers, "Webhook-Id": "c"}):
            assert receiver.post(repeated, reset) in (204, 401)
            assert {1: order(1, "pending")} == receiver.copy()


@in_each_language
def test_a_receiver_empties_its_copy_at_a_reset_and_accepts_types_that_it_does_not_know(receiver: Receiver) -> None:
    before, after = changed(order(1, "shipped", 100), order(2, "pending")), changed(order(1, "pending"))
    kinds = [message("ping"), message("orders.other", more=True), message("orders.reset", next="token")]
    with receiver.running():
        for name, body in enumerate([before, *kinds[:2]]):
            assert 204 == receiver.post(signed(body, str(name)), body)
        assert {1: "shipped", 2: "pending"} == _statuses(receiver)
        assert 204 == receiver.post(signed(kinds[2], "reset"), kinds[2])
        assert {} == receiver.copy()
        assert 204 == receiver.post(signed(after, "after"), after)
        assert {1: "pending"} == _statuses(receiver)


@in_each_language
def test_a_receiver_goes_on_after_a_connection_that_breaks_within_a_body(receiver: Receiver) -> None:
    body = changed(order(1, "pending"))
    with receiver.running():
        with closing(socket.create_connection(("127.0.0.1", receiver.port))) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        assert 204 == receiver.post(signed(body, "a"), body)
    assert {1} == receiver.copy().keys()


def _statuses(receiver: Receiver) -> dict[int, str]:
    return {number: each["status"] for number, each in receiver.copy().items()}


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(name="partner")
def _partner(store: Path) -> Iterator[httpx2.Client]:
    """A client with every scope."""
    put_orders(store, 250)
    key, _ = new_key(store, plan=UNLIMITED, options=EVERY_SCOPE)
    with serving(store, **SETTINGS) as server, server.client(key) as client:
        yield client


@in_each_language
def test_a_receiver_has_an_equal_copy_of_a_real_store_over_rotations_and_a_restore(
    receiver: Receiver, store: Path, partner: httpx2.Client, tmp_path: Path
) -> None:
    def send(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        response = partner.request(method, path, json=body)
        assert response.is_success, response.text
        return response.json() if response.content else None

    def equal() -> bool:
        orders = send("GET", "/v2/store/orders?limit=1000")["data"]
        return receiver.copy() == {each["id"]: each for each in orders}

    def cancel(number: int) -> None:
        send("DELETE", f"/v2/store/orders/{number}")

    backup = tmp_path / "backup.db"
    made = send("POST", "/v2/webhooks", {"url": receiver.url, "after": "beginning", "state": "paused"})
    webhook = f"/v2/webhooks/{made['id']}"

    with receiver.running(made["secret"]):
        assert 204 == send("POST", f"{webhook}/ping")["status"]
        send("PATCH", webhook, {"state": "active"})
        within(PATIENCE, equal)
        cancel(1)
        within(PATIENCE, equal)
        second = send("POST", f"{webhook}/rotate")["secret"]
        assert second != made["secret"]
        cancel(2)  # signed with both: the receiver has the old secret
        within(PATIENCE, equal)
    with receiver.running(second):
        cancel(3)  # signed with both: it has the new one
        within(PATIENCE, equal)
        third = send("POST", f"{webhook}/rotate", {"grace": 0})["secret"]
        cancel(4)
        within(PATIENCE, lambda: send("GET", webhook)["attempts"][-1].get("status") == 401)
        assert "no valid signature" == send("GET", webhook)["attempts"][-1]["excerpt"]
        assert {"lag", "failingSince"} < send("GET", webhook).keys()
        assert "pending" == _statuses(receiver)[4]
    with receiver.running(third):
        send("PATCH", webhook, {"url": receiver.url})  # ends the pause, as the page says
        within(PATIENCE, equal)
        assert 0 == petstore(store, "db", "backup", str(backup)).returncode
        cancel(5)
        within(PATIENCE, equal)
        assert 0 == petstore(store, "db", "restore", str(backup), "--yes").returncode
        within(PATIENCE, lambda: equal() and _statuses(receiver)[5] == "pending")


def test_the_receiver_of_the_trial_gets_every_order_of_the_sample_data_and_a_cancel(tmp_path: Path) -> None:
    needs.program("curl")
    receiver = Receiver("python", tmp_path)
    server = block(PAGE, "trial server", "sh")
    assert re.fullmatch(r"PETSTORE_WEBHOOK_SECRET=\$\(.+\) PETSTORE_WEBHOOK_NETWORKS=\S+ make run\n", server)
    ask, start = block(PAGE, "trial", "sh").rsplit("\n", 2)[:2]
    assert "WEBHOOK_SECRET=whsec_… python receiver.py" == start
    settings = {"PETSTORE_WEBHOOK_SECRET": SETTINGS["PETSTORE_WEBHOOK_SECRET"]}
    settings |= dict(re.findall(r"(PETSTORE_WEBHOOK_NETWORKS)=(\S+)", server))
    with served_demo(tmp_path / "demo.log", **settings) as demo:
        (store,) = tmp_path.glob("petstore-demo-*/demo.db")
        made = petstore_json(store, "keys", "create", "demo", *EVERY_SCOPE)
        environ = {**os.environ, "API": f"{demo.api}/v1", "KEY": made["key"]}
        ask = ask.replace("http://127.0.0.1:9000/", receiver.url)
        created = json.loads(subprocess.run(["sh", "-euc", ask], env=environ, capture_output=True, check=True).stdout)
        with receiver.running(created["secret"]), closing(_at(demo.api, made["key"])) as client:
            within(PATIENCE, lambda: len(receiver.copy()) == 40)
            assert 204 == client.delete("/v1/store/orders/7").status_code
            within(PATIENCE, lambda: _statuses(receiver)[7] == "cancelled")


def _at(api: str, key: str) -> httpx2.Client:
    return httpx2.Client(base_url=api, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE, trust_env=False)


def test_the_page_has_the_numbers_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    seconds = [5, 30, 2 * 60, 10 * 60, 30 * 60, 3600]
    assert seconds == list(RETRY_SECONDS)
    assert "5 and 30 seconds, 2, 10 and 30 minutes, and then an hour" in text
    assert MAX_GRACE == int(re.findall(r"`grace` \(0 to ([\d,]+)\)", text)[0].replace(",", ""))
