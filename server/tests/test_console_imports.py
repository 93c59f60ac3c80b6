"""Imports in the console: uploads, what they would do, what they did, and what is left of those that fail."""

import asyncio
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import apsw
import pytest

from petstore_server.console import import_jobs, uploads
from petstore_server.domain.orders import Order, Status
from petstore_server.engines.sqlite import connections
from petstore_server.operations.import_tasks import ImportReport, ImportTask, TaskOptions, run_task
from support.console import Console, finished, running_console, text_of, upload
from support.open_stores import BY, SqlitePlaces, Stores, log

pytestmark = pytest.mark.anyio

GOOD = b'{"id": 1, "petId": 7}\n{"id": 2, "quantity": 3}\n'


@pytest.fixture
def uploads_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, empty."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def sqlite_stores(tmp_path: Path) -> Stores:
    """Where the engine does not matter: nothing is imported."""
    return Stores(SqlitePlaces(tmp_path))


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def open_below(folder: Path) -> int:
    """How many descriptors of this process are open for anything in the directory, deleted or not."""
    return sum(os.path.realpath(link).startswith(str(folder)) for link in Path("/proc/self/fd").iterdir())


async def ids_of(console: Console) -> list[int]:
    return [order.id async for batch in console.store.orders.scan() for order in batch]


async def test_a_file_is_checked_then_imported(each_backend: Stores, uploads_folder: Path) -> None:
    async with running_console(each_backend) as console:
        await console.store.orders.import_batch(
            [Order(1, 7), Order(2, 1), Order(3, status=Status.SHIPPED)], "import-1", BY
        )
        browser = await console.browser.sign_in()
        path = await upload(browser, GOOD + b'{"id": 3, "petId": 9}\n{"id": 4}\n{"id": "five"}\n')
        text = await finished(browser, path)
        assert "Created 1 Changed 1 Unchanged 1 Rejected 2" in text
        assert "no longer pending in the store" in text
        assert "Nothing was changed so far." in text
        assert [1, 2, 3] == await ids_of(console)
        assert {0o600} == {stat.S_IMODE(file.stat().st_mode) for file in files(uploads_folder) if file.name == "upload"}

        await browser.submit(f"{path}/import")
        text = await finished(browser, path)
        assert "Created 1 Changed 1 Unchanged 1 Rejected 2" in text
        assert [1, 2, 3, 4] == await ids_of(console)
        entry = [entry for entry in await log(console.store) if entry.action == "orders.import"][-1]
        assert "operator:ada" == entry.actor
        assert f"The audit log has it as {entry.subject}" in text
        assert entry.subject in await browser.get(f"/audit?subject={entry.subject}")
        assert "upload" not in [file.name for file in files(uploads_folder)]


async def test_rejected_rows_are_downloaded_with_reasons(each_backend: Stores) -> None:
    async with running_console(each_backend) as console:
        browser = await console.browser.sign_in()
        path = await upload(browser, b"id,quantity\n1,2\n2,many\nx,1\n", name='my "best" orders.csv')
        text = await finished(browser, path)
        assert "Rejected 2" in text
        response = await browser.http.get(f"/console{path}/rejects")
        assert "attachment" in response.headers["content-disposition"]
        rows = [json.loads(line) for line in response.text.splitlines()]
        assert [(3, "quantity", "2,many"), (4, "id", "x,1")] == [
            (row["line"], row["column"], row["raw"].strip()) for row in rows
        ]
        assert all(row["reason"] in text for row in rows)


async def test_an_array_within_an_array_costs_no_other_element(sqlite_stores: Stores) -> None:
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        path = await upload(browser, b'[{"id":9000001},[2],{"id":9000003}]', name="nest.json")
        text = await finished(browser, path)
        assert "Created 2 Changed 0 Unchanged 0 Rejected 1" in text
        assert "an object in braces was expected" in text


async def test_a_field_name_as_long_as_a_row_is_shortened_in_the_reason(each_backend: Stores) -> None:
    async with running_console(each_backend) as console:
        browser = await console.browser.sign_in()
        bad = b'{"id": 3, "%s": 1}\n' % (b"x" * 600_000)
        path = await upload(browser, GOOD + bad * 2)
        text = await finished(browser, path)
        assert "Rejected 2" in text
        assert f"2 rows: '{'x' * 60}…' is not a field" in text
        text = await browser.submit(f"{path}/import")
        assert "Created 2" in await finished(browser, path)
        assert [1, 2] == await ids_of(console)


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
async def test_a_deleted_uploads_directory_is_replaced_and_closed(sqlite_stores: Stores, uploads_folder: Path) -> None:
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        await finished(browser, await upload(browser, GOOD))
        before = open_below(uploads_folder)
        shutil.rmtree(next(iter(uploads_folder.iterdir())))  # noqa: ASYNC240
        await finished(browser, await upload(browser, GOOD))
        assert 1 == before == open_below(uploads_folder)


@pytest.mark.parametrize(
    ("content", "name", "wrong"),
    [
        (b"", "orders.csv", "orders.csv is empty."),
        (b"", "", "Choose a file."),
        (b"PK\x03\x04 and more", "orders.xlsx", "The file is an Excel workbook or a zip archive"),
        (b"\x1f\x8b\x08\x00 and more", "orders.csv.gz", "The file is compressed with gzip"),
        (b"%PDF-1.7 and more", "orders.csv", "The file is a PDF document"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "picture.png", "The file is a picture"),
        (b"id,petId\rx\n1,2\n", "orders.csv", "The first line has a carriage return (CR) outside of quotes"),
        (b"id,%s\n1,2\n" % (b"x" * 200_000), "orders.csv", f"it has '{'x' * 50}'. Give --ignore-column NAME"),
        (b"name,price\nBiscuit,3\n", "pets.csv", "it has 'name', 'price'"),
        (b"{}", "orders.json", "The file is not a JSON array"),
    ],
)
async def test_a_file_of_the_wrong_kind_is_refused_and_deleted(
    sqlite_stores: Stores, uploads_folder: Path, content: bytes, name: str, wrong: str
) -> None:
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        await browser.get("/imports/new")
        form = f'--b\r\nContent-Disposition: form-data; name="form_token"\r\n\r\n{browser.form_token}\r\n'
        form += f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        kind = {"content-type": "multipart/form-data; boundary=b"}
        body = form.encode() + content + b"\r\n--b--\r\n"
        response = await browser.http.post("/console/imports/new", content=body, headers=kind)
        assert 400 == response.status_code
        assert wrong in text_of(response)
        assert re.search(r'id="file"[^>]*aria-invalid="true"', response.text)
        assert [] == files(uploads_folder)


async def test_a_file_that_is_too_large_is_refused_and_deleted(
    sqlite_stores: Stores, uploads_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "LARGEST_FILE", 3 * 1024 * 1024)
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        assert "The file is larger than 3 MB" in await upload(browser, b"x" * (3 * 1024 * 1024 + 1), 413)
        assert [] == files(uploads_folder)
        line = b'{"id": 1}\n'
        path = await upload(browser, line * (3 * 1024 * 1024 // len(line)))
        assert "checked" in await finished(browser, path)


async def test_an_upload_that_breaks_off_leaves_nothing(sqlite_stores: Stores, uploads_folder: Path) -> None:
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        await browser.get("/imports/new")
        form = f'--b\r\nContent-Disposition: form-data; name="form_token"\r\n\r\n{browser.form_token}\r\n'
        form += '--b\r\nContent-Disposition: form-data; name="file"; filename="orders.jsonl"\r\n\r\n'
        kind = {"content-type": "multipart/form-data; boundary=b"}
        response = await browser.http.post("/console/imports/new", content=form.encode() + GOOD, headers=kind)
        assert 400 == response.status_code
        assert "The upload broke off" in text_of(response)
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.http.cookies.jar)
        await _disconnected(console, form.encode() + GOOD, cookies)
        assert [] == files(uploads_folder)
        assert "None. What was imported earlier" in await browser.get("/imports/new")


async def _disconnected(console: Console, body: bytes, cookies: str) -> None:
    """Send a part of an upload, then close the connection."""
    messages: list[dict[str, object]] = [
        {"type": "http.request", "body": body, "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, object]:
        return messages.pop(0)

    async def send(_: object) -> None:
        pass

    headers = {"host": "127.0.0.1:8081", "content-type": "multipart/form-data; boundary=b", "cookie": cookies}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/console/imports/new",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await console.application(scope, receive, send)


async def test_an_upload_without_the_sessions_form_token_is_refused(
    sqlite_stores: Stores, uploads_folder: Path
) -> None:
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        assert "The form has expired" in await upload(browser, GOOD, 403, form_token="0" * 64)
        other = await console.another_browser().sign_in("bob")
        assert "The form has expired" in await upload(browser, GOOD, 403, form_token=other.form_token)
        file_first = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--b--\r\n'
        kind = {"content-type": "multipart/form-data; boundary=b"}
        response = await browser.http.post("/console/imports/new", content=file_first, headers=kind)
        assert 403 == response.status_code
        assert [] == files(uploads_folder)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"form_token=x", "application/x-www-form-urlencoded"),
        (b"x", "multipart/form-data"),
        (b"x", f"multipart/form-data; boundary={'b' * 1000}"),
        (b"no boundary at all", "multipart/form-data; boundary=b"),
        (
            b'--b\r\nContent-Disposition: form-data; name="note"\r\n\r\n' + b"x" * 70_000,
            "multipart/form-data; boundary=b",
        ),
        (b'--b\r\nContent-Disposition: form-data; name="note"\r\n\r\n\xff\r\n--b--', "multipart/form-data; boundary=b"),
    ],
)
async def test_a_malformed_form_is_refused(sqlite_stores: Stores, uploads_folder: Path, body: bytes, kind: str) -> None:
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        response = await browser.http.post("/console/imports/new", content=body, headers={"content-type": kind})
        assert response.status_code in (400, 403, 413)
        assert [] == files(uploads_folder)


async def test_options_say_how_to_read_a_file(each_backend: Stores) -> None:
    async with running_console(each_backend) as console:
        browser = await console.browser.sign_in()
        content = "Bestellnr;Menge;Versand;Notiz\n1;2;24.12.2026 10:00;für Ada\n".encode("windows-1252")
        options = {"columns": "Bestellnr=id, Menge=quantity, Versand=shipDate", "ignore": "yes", "format": "csv"}
        options |= {"zone": "Europe/Berlin", "date_format": "%d.%m.%Y %H:%M", "encoding": "windows-1252"}
        path = await upload(browser, content, 303, "export.txt", **options)
        await finished(browser, path)
        await browser.submit(f"{path}/import")
        assert "Created 1" in await finished(browser, path)
        assert Order(1, None, 2, "2026-12-24T09:00:00Z") == await console.store.orders.find(1)


@pytest.mark.parametrize(
    ("field", "value", "wrong"),
    [
        ("format", "xlsx", "Choose one of the given formats."),
        ("columns", "Menge=price", "'price' is not a field"),
        ("columns", "Menge", "'Menge' is not of the form COLUMN=FIELD"),
        ("zone", "Europe/Atlantis", "is not a time zone"),
        ("date_format", "%H:%M", "does not name the year"),
        ("encoding", "utf-99", "is not an encoding of text files"),
    ],
)
async def test_wrong_options_are_explained_and_kept(
    sqlite_stores: Stores, uploads_folder: Path, field: str, value: str, wrong: str
) -> None:
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        assert wrong in await upload(browser, GOOD, 400, "orders.jsonl", **{field: value})
        assert field == "format" or f'value="{value}"' in browser.page
        assert [] == files(uploads_folder)


async def test_a_file_is_imported_once(each_backend: Stores) -> None:
    async with running_console(each_backend) as console:
        ada, bob = await console.browser.sign_in(), await console.another_browser().sign_in("bob")
        path = await upload(ada, GOOD)
        await finished(ada, path)
        await finished(bob, path)
        await bob.submit(f"{path}/import")
        assert "by now; it is imported once" in await ada.submit(f"{path}/import", status=409)
        await finished(bob, path)
        entries = [entry.actor for entry in await log(console.store) if entry.action == "orders.import"]
        assert ["operator:bob"] == entries


async def test_an_upload_is_deleted_by_its_button_and_after_a_time(
    sqlite_stores: Stores, uploads_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        path = await upload(browser, GOOD)
        await finished(browser, path)
        assert "Deleted orders.jsonl" in await browser.submit(f"{path}/discard")
        assert "There is no such upload here" in await browser.get(path, 404)
        assert [] == files(uploads_folder)
        monkeypatch.setattr(import_jobs, "KEPT_SECONDS", 0.01)
        path = await upload(browser, GOOD)
        async with asyncio.timeout(60):
            while files(uploads_folder):  # noqa: ASYNC110 - a timer deletes them
                await asyncio.sleep(0.05)
        await browser.get(path, 404)
        assert [] == await ids_of(console)


async def test_uploads_are_limited_in_number(sqlite_stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_jobs, "MOST_JOBS", 1)
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        path = await upload(browser, GOOD)
        assert "There are 1 uploads on this host already" in await upload(browser, GOOD, 503)
        await finished(browser, path)


async def test_an_import_that_is_stopped_keeps_what_it_imported(each_backend: Stores) -> None:
    async with running_console(each_backend) as console:
        browser = await console.browser.sign_in()
        path = await upload(browser, b"".join(b'{"id": %d}\n' % number for number in range(1, 40_001)))
        await finished(browser, path)
        await browser.submit(f"{path}/import")
        text = await browser.submit(f"{path}/stop")
        assert "Stopped" in text or "Imported" in text
        created = int(re.search(r"Created ([\d,]+)", text)[1].replace(",", ""))  # type: ignore[index]
        assert created == len(await ids_of(console))


async def test_what_a_stopped_server_left_is_deleted_by_the_next(sqlite_stores: Stores, uploads_folder: Path) -> None:
    left = uploads_folder / "petstore-uploads-left"
    (left / "job").mkdir(parents=True)
    (left / "job" / "upload").touch()
    async with running_console(sqlite_stores) as console:
        browser = await console.browser.sign_in()
        path = await upload(browser, GOOD)
        assert not left.exists()
        await finished(browser, path)
        async with running_console(sqlite_stores) as second:
            other = await second.browser.sign_in()
            await finished(other, await upload(other, GOOD))
            await browser.get(path)  # in use, so it is still there
    assert [] == files(uploads_folder)


async def test_an_import_says_once_that_the_store_cannot_be_used(
    tmp_path: Path, sqlite_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.05)
    file, rejects = tmp_path / "orders.jsonl", tmp_path / "rejects.jsonl"
    file.write_bytes(GOOD)
    task = ImportTask(sqlite_stores.url, str(file), file.name, str(rejects), TaskOptions(), BY.name, BY.at, False)
    async with sqlite_stores.opened():
        other = apsw.Connection(sqlite_stores.url.removeprefix("sqlite:///"))
        other.execute("BEGIN IMMEDIATE")
        reports: list[ImportReport] = []
        await run_task(task, sqlite_stores.opened, sqlite_stores.opened, reports.append)
        other.close()
    assert "The store cannot be used: another program keeps it locked." == reports[-1].error
