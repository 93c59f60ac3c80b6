"""Imports in the console: uploads, what they would do, what they did, and what is left of those that fail."""

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock, patch

import pytest

from petstore_server import __version__
from petstore_server.cli import importing
from petstore_server.cli.orders import import_orders
from petstore_server.console import import_choices, import_jobs, import_process
from petstore_server.console.pages import imports
from petstore_server.domain.accounts import Limits, Plan, VisibleOrders
from petstore_server.domain.orders import Order, Status
from testing.console import Browser, Console, finished, text_of, upload
from testing.documents import texts
from testing.stores import BY, Stores, log
from testing.subprocesses import PATIENCE

GOOD = b'{"id": 1, "petId": 7}\n{"id": 2, "quantity": 3}\n'


@pytest.fixture(autouse=True)
def _unhurried_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "_FIRST_LOOK_SECONDS", 60.0)  # on a busy machine a check begins late


@pytest.fixture
def uploads_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, empty."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def left(folder: Path) -> list[str]:
    """The files in the directory, and those there that this process has open, deleted or not."""
    opened = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return [*(str(path) for path in folder.rglob("*")), *(path for path in opened if path.startswith(str(folder)))]


async def checked(browser: Browser, content: bytes, name: str = "orders.jsonl", **fields: str) -> str:
    """Upload a file, and wait until it was checked; the path of its page."""
    path = await upload(browser, content, 303, name, **fields)
    await finished(browser, path)
    return path


async def check(browser: Browser, path: str, choices: Mapping[str, str]) -> str:
    """Check an upload with these choices; the text of its page at the end."""
    await browser.get(path)
    await browser.submit(f"{path}/check", choices)
    return await finished(browser, path)


async def imported(browser: Browser, path: str) -> str:
    """Import a file that was checked; the text of its page at the end."""
    await browser.submit(f"{path}/import")
    return await finished(browser, path)


async def ids_of(console: Console) -> list[int]:
    return [order.id async for batch in console.store.orders.scan() for order in batch]


FORM = {"content-type": "multipart/form-data; boundary=b"}
NOTE = b'--b\r\nContent-Disposition: form-data; name="note"\r\n\r\n'
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
END = b"\r\n--b--\r\n"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("orders.jsonl", rb'{"id": 1, "\ud800": 2}', "Rejected 1"),
        ("orders.json", rb'[{"id": 1, "\ud800": 2}]', "The file is not a JSON array: "),
    ],
)
async def test_a_name_with_half_of_a_surrogate_pair_is_not_among_the_columns(
    name: str, content: bytes, problem: str, browser: Browser
) -> None:
    path = await checked(browser, content, name)
    assert problem in await check(browser, path, {"column-0": "id", "column-1": "petId"})
    assert 'name="column-0"' in browser.page
    assert 'name="column-1"' not in browser.page


async def form(browser: Browser, content: bytes, name: str) -> bytes:
    """The form of an upload, up to the end of the file."""
    await browser.get("/imports/new")
    token = f'--b\r\nContent-Disposition: form-data; name="form_token"\r\n\r\n{browser.form_token}\r\n'
    file = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return (token + file).encode() + content


async def test_a_file_whose_name_has_half_of_a_surrogate_pair_in_the_encoding_of_the_form_is_checked(
    browser: Browser,
) -> None:
    headers = {"content-type": f"{FORM['content-type']}; charset=utf-7"}
    content = await form(browser, b"id\n1", "a+2AA-.csv") + END
    response = await browser.http.post("/console/imports/new", content=content, headers=headers)
    assert "a?.csv" in await finished(browser, response.headers["location"].removeprefix("/console"))
    assert "Created 1" in browser.text


async def test_a_file_is_checked_then_imported(each_backend: Stores, uploads_folder: Path, console: Console) -> None:
    await console.store.orders.import_batch([Order(1, 7), Order(2, 1), Order(3, status=Status.SHIPPED)], "import-1", BY)
    browser = await console.browser.sign_in()
    path = await upload(browser, GOOD + b'{"id": 3, "petId": 9}\n{"id": 4}\n{"id": "five"}\n')
    text = await finished(browser, path)
    assert "Created 1 Replaced 1 Unchanged 1 Rejected 2" in text
    assert "no longer pending in the store" in text
    assert "Nothing was changed so far." in text
    assert [1, 2, 3] == await ids_of(console)
    assert [True, True] == [each.endswith(" (deleted)") for each in left(uploads_folder)], "the file and its rejects"

    with patch.object(import_jobs, "TemporaryFile", side_effect=OSError):  # on a full disk
        text = await imported(browser, path)
    assert "Created 1 Replaced 1 Unchanged 1 Rejected 2" in text
    assert [1, 2, 3, 4] == await ids_of(console)
    entry = [entry for entry in await log(console.store) if entry.action == "orders.import"][-1]
    assert "operator:ada" == entry.actor
    assert f"{entry.subject} · by ada" in text
    assert "Imported orders" in await browser.get(f"/audit?subject={entry.subject}")
    assert f'/imports/{entry.subject}"' in browser.page
    assert [] == left(uploads_folder)


async def test_rejected_rows_are_downloaded_with_reasons_under_a_name_of_visible_characters(browser: Browser) -> None:
    name = 'exports\\my "best" \u202eorders\u200b\ufe0f.csv'
    path = await upload(browser, b"id,quantity\n1,2\n2,many\nx,1\n", name=name)
    text = await finished(browser, path)
    assert "Rejected 2" in text
    assert "exports" not in text
    response = await browser.http.get(f"/console{path}/rejects")
    name = "filename=\"rejects.jsonl\"; filename*=UTF-8''my%20%2522best%2522%20orders-rejects.jsonl"
    assert f"attachment; {name}" == response.headers["content-disposition"]
    assert "application/jsonl" == response.headers["content-type"]
    rows = [json.loads(line) for line in response.text.splitlines()]
    assert [(3, "quantity", "2,many"), (4, "id", "x,1")] == [
        (row["line"], row["column"], row["raw"].strip()) for row in rows
    ]
    assert all(row["reason"] in text for row in rows)


@pytest.mark.parametrize("action", ["import", "discard"])
async def test_a_download_of_rejected_rows_ends_with_the_run_that_rejected_them(
    monkeypatch: pytest.MonkeyPatch, action: str, console: Console, browser: Browser
) -> None:
    path = await checked(browser, GOOD + b'{"id": "x"}\n')
    (job,) = console.sources.imports.all()
    whole, parts = b"".join(job.read_rejects()), job.read_rejects()
    with monkeypatch.context() as patched:
        patched.setattr(import_jobs, "_PART_BYTES", 10)
        begin = next(parts)
    await browser.submit(f"{path}/{action}")
    assert whole == begin + b"".join(parts)


async def test_a_file_of_the_wrong_kind_is_refused_and_deleted(uploads_folder: Path, browser: Browser) -> None:
    row = b'{"line": 2, "column": "id", "reason": "id \'x\' is not a whole number.", "raw": "x,1"}\n'
    rejected = "This is a list of rejected rows, not of orders; correct these lines in a copy of your file"
    for content, name, wrong in (
        (b"", "or\0d~ers.csv", "ord~ers.csv is empty."),
        (b"", "", "Choose a file."),
        (b"\x1f\x8b\x08\x00 and more", "orders.csv.gz", "The file is compressed with gzip; unpack it."),
        (b"PK\x03\x04 and more", "orders.xlsx", "The file is an Excel workbook or a zip archive; save the sheet as"),
        (row, "rejects.jsonl", rejected),
        (b"[" + row + b"]", "rejects.json", rejected),
    ):
        body = await form(browser, content, name) + END
        response = await browser.http.post("/console/imports/new", content=body, headers=FORM)
        assert 400 == response.status_code, wrong
        assert wrong in text_of(response), wrong
        assert re.search(r'id="file"[^>]*aria-invalid="true"', response.text)
        assert [] == left(uploads_folder)


async def test_what_may_be_a_mistake_is_pointed_out_before_the_import(console: Console, browser: Browser) -> None:
    await console.store.accounts.create("acme", Plan.FREE, Limits(60, 1000), BY, orders=VisibleOrders.OWN)
    text = await browser.get(await checked(browser, b"id,quantity,account\n1,-3,\n2,1,acme\n", "orders.csv"))
    assert "1 row has a quantity below 1, in line 2, and is imported; leave it out if it is a return." in text
    owners = "accounts that see their own orders only do not see it; enter NAME under “Account”, or a column account."
    assert f"1 order has no owner: {owners}" in text


async def test_the_accounts_to_choose_from_are_offered_and_a_wrong_one_is_explained(
    console: Console, browser: Browser
) -> None:
    for name in ("acme & co", "globex"):
        await console.store.accounts.create(name, Plan.FREE, Limits(60, 1000), BY)
    await console.store.accounts.close_account("globex", BY)
    path = await checked(browser, b"id\n1\n", "orders.csv")
    text = await check(browser, path, {"column-0": "id", "account": "acme"})
    assert "There is a problem There is no account 'acme'; choose one under “Account”." in text
    assert "petstore" not in text.partition("There is no account")[2].partition("Columns")[0]
    assert '<datalist id="accounts"><option value="acme &amp; co"></option></datalist>' in browser.page
    assert re.search(r'id="account"[^>]*list="accounts"', browser.page)
    assert "Created 1" in await check(browser, path, {"column-0": "id", "account": "acme & co"})


async def test_a_file_that_is_too_large_is_refused_and_deleted(
    uploads_folder: Path, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    monkeypatch.setattr(imports, "MAX_FILE", 300_000)
    for size in (300_001, 3_000_000):
        assert "The file is larger than 100 MB" in await upload(browser, b"x" * size, 413)
    assert [] == left(uploads_folder)
    body = await form(browser, b'{"id": 1}\n' * 30_000, "orders.jsonl") + END
    for less, status in ((1, 413), (0, 303)):
        monkeypatch.setattr(imports, "_MAX_FIELD_BYTES", len(body) - 300_000 - less)
        assert status == (await browser.http.post("/console/imports/new", content=body, headers=FORM)).status_code


async def test_an_upload_that_breaks_off_leaves_nothing(
    uploads_folder: Path, monkeypatch: pytest.MonkeyPatch, console: Console, browser: Browser
) -> None:
    part = await form(browser, GOOD, "orders.jsonl")
    response = await browser.http.post("/console/imports/new", content=part, headers=FORM)
    assert 400 == response.status_code
    assert "The upload broke off" in text_of(response)
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.http.cookies.jar)
    headers = {"host": "127.0.0.1:8081", "cookie": cookies, **FORM}
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/console/imports/new", "query_string": b""}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
    excess = {"type": "http.request", "body": b"x", "more_body": True}
    disconnecting = [{"type": "http.request", "body": part, "more_body": True}, excess, {"type": "http.disconnect"}]
    with monkeypatch.context() as patched:
        patched.setattr(imports, "MAX_FILE", len(part) - imports._MAX_FIELD_BYTES)
        await console.application(scope, AsyncMock(side_effect=disconnecting), send := AsyncMock())
    assert (b"", 400) == (excess["body"], send.await_args_list[0].args[0]["status"]), "too much is not stored"
    assert [] == left(uploads_folder)
    assert "up to 100 MB" in await browser.get("/imports/new")
    assert "Uploads on this server None." in await browser.get("/imports")


async def test_a_malformed_form_is_refused(uploads_folder: Path, browser: Browser) -> None:
    multipart = FORM["content-type"]
    for body, kind, status in (
        (b"form_token=x", "application/x-www-form-urlencoded", 400),
        (b"x", "multipart/form-data", 400),
        (b"x", f"multipart/form-data; boundary={'b' * 1000}", 400),
        (b"no boundary at all", multipart, 400),
        (NOTE + b"x" * 65_536 + END, multipart, 403),
        (NOTE + b"x" * 65_537 + END, multipart, 400),
        (NOTE + b"\xff" + END, multipart, 403),
        ((NOTE + b"\r\n") * 20 + END, multipart, 403),
        ((NOTE + b"\r\n") * 21 + END, multipart, 400),
        (FILE + b"x\r\n" + FILE + b"x" + END, multipart, 400),
        (FILE + b"x" + END, multipart, 403),
    ):
        response = await browser.http.post("/console/imports/new", content=body, headers={"content-type": kind})
        assert status == response.status_code, (kind, body[:100])
        assert [] == left(uploads_folder)


async def test_choices_say_how_to_read_a_file(console: Console, browser: Browser) -> None:
    content = "Bestellnr;Menge;Versand;Notiz\n1;2;24.12.2026 10:00;für Ada\n".encode("windows-1252")
    path = await checked(browser, content, "export.txt", format="csv", encoding="windows\0-1252")
    assert "choose below which column has the number of the order" in await browser.get(path)
    assert re.search(r"Notiz .* für Ada", browser.text)
    chosen = {"column-0": "id", "column-1": "quantity", "column-2": "shipDate"}
    options = {"zone": "Europe/Berlin", "date_format": "%d.%m.%Y %H:%M", "encoding": "windows-1252", "format": "csv"}
    assert "Created 1" in await check(browser, path, {**chosen, **options})
    assert "2026-12-24 09:00:00" in browser.text
    await imported(browser, path)
    assert Order(1, None, 2, "2026-12-24T09:00:00Z") == await console.store.orders.find(1)


async def test_only_a_status_that_an_import_would_reject_can_be_rejected(browser: Browser) -> None:
    path = await checked(browser, b"id,status\n1,Shipped\n2,canceled\n3,sent\n", "orders.csv")
    text = await check(browser, path, {"column-0": "id", "column-1": "status", "status-sent": "pending"})
    assert "Created 3" in text
    offered = dict(re.findall(r'<select id="status-\d" name="status-(\w+)"><option value="(\w*)"', browser.page))
    assert {"Shipped": "pending", "canceled": "pending", "sent": ""} == offered


async def test_a_column_is_what_is_chosen_for_it_whatever_its_name(console: Console, browser: Browser) -> None:
    """A choice was no option of the check if it was the name of the column: such orders were not shipped."""
    choices = {"column-0": "id", "column-1": "shipDate,shipped"}
    path = await checked(browser, b"id,Shipped\n1,2026-11-01T10:00:00Z\n", "orders.csv")
    assert "Created 1" in await check(browser, path, choices)
    await imported(browser, path)
    assert Order(1, ship_date="2026-11-01T10:00:00Z", status=Status.SHIPPED) == await console.store.orders.find(1)
    path = await checked(browser, b"id,shipped\n2,yes\n", "orders.csv")
    assert "Created 1" in await check(browser, path, {**choices, "column-1": "shipped"})
    path = await checked(browser, b'{"ID":2,"Quantity":3}\n')
    assert "Created 1" in await browser.get(path)


async def test_a_field_that_only_later_records_have_can_be_left_out(browser: Browser) -> None:
    records = [json.dumps({"id": number}) for number in range(1, 101)] + ['{"id":101,"note":"x"}']
    path = await checked(browser, "\n".join(records).encode())
    left_out = "Leave out columns that are not listed above"
    assert f"column note (if it is not there, tick “{left_out}”) to leave it out." in await browser.get(path)
    assert "Created 101" in await check(browser, path, {"column-0": "id", "ignore": "yes"})


async def test_the_columns_of_a_file_are_read_again_in_another_encoding(browser: Browser) -> None:
    path = await checked(browser, "id,Stück\n1,2\n".encode(), "orders.csv", encoding="windows-1252")
    assert "leave out the encoding" in await browser.get(path)
    choices = {"column-0": "id", "column-1": "quantity"}
    assert "'utf-99' is not" in await check(browser, path, {**choices, "encoding": "utf-99"})
    assert "Created 1" in await check(browser, path, {**choices, "encoding": ""})
    assert "Stück" in browser.text


async def test_a_status_with_a_mark_of_its_direction_is_chosen(browser: Browser) -> None:
    path = await checked(browser, "id,status\n1,\u200fנשלח\n".encode(), "orders.csv")
    await check(browser, path, {"column-0": "id", "column-1": "status"})
    [name] = re.findall(r'name="(status-[^"]*)"', browser.page)
    assert "Created 1" in await check(browser, path, {"column-0": "id", "column-1": "status", name: "shipped"})
    assert re.search(rf'name="{re.escape(name)}">.*?"shipped" selected', browser.page)


async def test_a_status_of_several_lines_is_chosen_by_the_name_that_browsers_make_of_it(browser: Browser) -> None:
    path = await checked(browser, b'id,status\n1,"sent\nby sea"\n', "orders.csv")
    choices = {"column-0": "id", "column-1": "status", "status-sent\r\nby sea": "shipped"}
    assert "Created 1" in await check(browser, path, choices)


async def test_the_choices_of_a_session_that_ended_are_shown_again(console: Console, browser: Browser) -> None:
    path = await checked(browser, b"no,amount,state\n1,2,sent\n", "orders.csv")
    chosen = {"column-0": "id", "column-1": "quantity", "column-2": "status", "zone": "UTC", "update_only": "yes"}
    await browser.get(path)
    typed = {**chosen, "form_token": browser.form_token, "here": path}
    await console.store.sessions.end_all(BY)
    assert "what you typed is kept" in await browser.submit(f"{path}/check", typed, 401)
    await browser.sign_in()
    assert "What you had typed is in the form below again." in await browser.get(path)
    selected = re.findall(r'<select[^>]* name="(column-\d)"[^>]*>.*?value="(\w+)" selected', browser.page)
    assert {name: target for name, target in chosen.items() if "column" in name} == dict(selected)
    assert re.search(r'name="zone"[^>]* value="UTC"', browser.page)
    assert 'name="update_only" value="yes" checked' in browser.page
    await check(browser, path, chosen)
    assert "What you had typed" not in await browser.get(path)


async def test_an_import_is_the_one_that_its_page_shows(console: Console, browser: Browser) -> None:
    path = await checked(browser, b"no,amount,pieces\n1,2,3\n", "orders.csv")
    await check(browser, path, {"column-0": "id", "column-1": "quantity"})
    seen, bob = browser.hidden("seen"), await console.another_browser().sign_in("bob")
    await check(bob, path, {"column-0": "id", "column-2": "quantity"})
    page = await browser.submit(f"{path}/import", {"seen": seen}, 409)
    assert "orders.csv was checked again meanwhile; see what importing it would do now." in page
    assert f'href="/console{path}"' in browser.page
    assert [] == await ids_of(console)
    await browser.get(path)
    await browser.submit(f"{path}/import", {"seen": browser.hidden("seen")})
    await finished(browser, path)
    assert Order(1, None, 3) == await console.store.orders.find(1)


async def test_a_wrong_choice_is_explained_and_kept(uploads_folder: Path, browser: Browser) -> None:
    wrong = "'utf-99' is not an encoding of text files; give one such as windows-1252, iso-8859-1"
    assert f"There is a problem {wrong}" in await upload(browser, GOOD, 400, "orders.jsonl", encoding="utf-99")
    assert re.search(r'id="encoding"[^>]*value="utf-99"[^>]*aria-invalid="true"', browser.page)
    assert [] == left(uploads_folder)
    path = await checked(browser, b"id,shipDate\n1,2026-12-01 10:00\n", "orders.csv")
    for field, value, wrong in (
        ("format", "xlsx", "'xlsx' is not one of 'jsonl', 'json', 'csv'."),
        ("zone", "Europe/Atlantis", "'Europe/Atlantis' is not a time zone of this system; give a name such as Europe/"),
    ):
        text = await check(browser, path, {"column-0": "id", "column-1": "shipDate", field: value})
        assert f"There is a problem {wrong}" in text
        assert re.search(rf'id="{field}"[^>]*aria-invalid="true"', browser.page)
        assert field == "format" or f'value="{value}"' in browser.page
        await browser.submit(f"{path}/import", status=409)
    text = await check(browser, path, {"column-0": "id", "column-1": "shipDate", "zone": "Europe/Berlin"})
    assert "Created 1" in text, "the file is still there"


async def test_the_reasons_of_rejected_rows_name_the_fields_with_which_the_file_is_checked_again(
    browser: Browser,
) -> None:
    path = await checked(browser, b"id,shipDate\n1,01/11/2026\n", "shop.csv")
    text = await browser.get(path)
    assert "No row can be imported" in text
    assert "“Date format”" in text
    assert "--" not in text
    assert all(label in text for label, _ in import_choices.FIELDS.values())
    chosen = {"column-0": "id", "column-1": "shipDate", "date_format": "%d/%m/%Y", "zone": "UTC"}
    assert "Created 1" in await check(browser, path, chosen)


async def test_a_file_is_imported_once(console: Console) -> None:
    ada, bob = await console.browser.sign_in(), await console.another_browser().sign_in("bob")
    path = await checked(ada, GOOD)
    await finished(bob, path)
    await bob.submit(f"{path}/import")
    assert "by now; it is imported once" in await ada.submit(f"{path}/import", status=409)
    await finished(bob, path)
    assert ["operator:bob"] == [entry.actor for entry in await log(console.store) if entry.action == "orders.import"]


async def test_a_file_that_is_uploaded_by_a_double_click_is_one_upload(console: Console, browser: Browser) -> None:
    await browser.get("/imports/new")
    token = browser.form_token
    first, second = await asyncio.gather(*[upload(browser, b'{"id": 1}', form_token=token) for _ in range(2)])
    assert first == second
    assert first != await upload(browser, b'{"id": 2}', form_token=token)
    assert first != await upload(browser, b'{"id": 1}', form_token=token, replace_placed="yes")
    assert 3 == len(console.sources.imports.all())


async def test_an_upload_is_deleted_by_its_button_and_after_a_time(
    uploads_folder: Path, monkeypatch: pytest.MonkeyPatch, console: Console, browser: Browser
) -> None:
    path = await checked(browser, GOOD)
    assert "Deleted orders.jsonl" in await browser.submit(f"{path}/discard")
    assert "There is no such upload here. Each is deleted 60 minutes after" in await browser.get(path, 404)
    assert [] == left(uploads_folder)
    monkeypatch.setattr(import_jobs, "KEPT_SECONDS", 0.01)
    await upload(browser, GOOD)
    async with asyncio.timeout(60):
        while console.sources.imports.all():  # noqa: ASYNC110 - a timer deletes it
            await asyncio.sleep(0.05)
    assert [] == left(uploads_folder)
    assert [] == await ids_of(console)


async def test_uploads_are_limited_in_number_and_by_the_disk(
    monkeypatch: pytest.MonkeyPatch, console: Console, browser: Browser
) -> None:
    monkeypatch.setattr(import_jobs, "MAX_JOBS", 3)
    waiting, *paths = [await checked(browser, GOOD, f"{'x' * 300}.jsonl") for _ in "abc"]
    assert "There are 3 uploads on this host already" in await upload(browser, GOOD, 503)
    assert {f"{'x' * 194}.jsonl"} == {job.name for job in console.sources.imports.all()}
    for path in paths:
        await imported(browser, path)
    await checked(browser, GOOD)
    for path, status in zip((waiting, *paths), (200, 404, 200), strict=True):  # the oldest that is imported makes room
        await browser.get(path, status)

    monkeypatch.setattr(console.sources.imports, "check", Mock(side_effect=OSError(28, "No space left on device")))
    assert "The server cannot store the file: No space left on device." in await upload(browser, GOOD, 507)


async def test_the_page_of_an_import_shows_its_outcome_and_offers_its_rejects(
    console: Console, browser: Browser
) -> None:
    rows = b"".join(b'{"id": %d, "petId": "x"}\n' % number for number in range(60))
    path = await checked(browser, b'{"id": 1}\n' + rows, name="night.jsonl")
    text = await imported(browser, path)
    [run] = (await console.store.imports.page(5)).imports
    assert ("finished", "night.jsonl", "operator:ada") == (run.state, run.file, run.actor)
    assert text == await browser.get(f"/imports/{run.id}"), "the page of the upload is that of the import"
    assert "Created 1 Replaced 0 Unchanged 0 Rejected 60" in text
    assert "The first 50 of 60." in text
    response = await browser.http.get(f"/console/imports/{run.id}/rejects")
    assert "filename*=UTF-8''night-rejects.jsonl" in response.headers["content-disposition"]
    assert [*range(2, 62)] == [json.loads(line)["line"] for line in response.text.splitlines()]
    assert "night.jsonl" not in (await browser.get("/imports")).partition("What was imported")[0]
    await console.store.imports.forget(run.seen_at + 1, 100)
    assert "The rows themselves are not kept any more." in await browser.get(f"/imports/{run.id}")


async def test_the_page_of_an_import_that_was_not_finished_says_why(console: Console, browser: Browser) -> None:
    cli = console.store.imports
    await cli.set_state("orders", "import-1", BY, "a.csv", state="failed", error="Enter a “Format”.")
    await console.store.orders.import_batch([Order(1)], "import-3", BY)
    text = await browser.get("/imports/import-1")
    assert "It failed" in text
    assert "Enter a “Format”." in text
    assert "Nothing was changed." in text
    response = await browser.http.get("/console/imports/import-3")
    assert "2" == response.headers["refresh"]
    assert "Last seen running" in response.text
    assert "refresh" not in (await browser.http.get("/console/imports/import-3?refresh=off")).headers


SOURCES = Path(imports.__file__).parents[2] / "imports"


def test_no_message_of_an_import_names_an_option_or_a_field_of_the_form() -> None:
    written = [text for path in SOURCES.glob("*.py") for text in texts(path)]
    assert [] == [text for text in written if re.search(r"(?<!-)--[a-z]|[“”]", text)]


def test_each_choice_that_a_message_names_is_an_option_of_the_command() -> None:
    named = {
        str(text.args[0].value)
        for path in SOURCES.glob("*.py")
        for text in ast.walk(ast.parse(path.read_text()))
        if isinstance(text, ast.Call)
        and isinstance(text.func, ast.Name)
        and text.func.id in ("choose", "Choice")
        and isinstance(text.args[0], ast.Constant)
    }
    options = {option for param in import_orders.params for option in param.opts}
    assert {f"--{name.replace('_', '-')}" for name in named - importing.STEPS.keys()} <= options
    assert {import_choices.option(name) for name in import_choices.FIELDS} <= options
    assert importing.STEPS.keys() <= named
    assert named <= import_choices.PHRASES.keys()


async def test_an_import_that_is_stopped_keeps_what_it_imported(console: Console, browser: Browser) -> None:
    path = await checked(browser, b"".join(b'{"id": %d}\n' % number for number in range(1, 40_001)))
    await browser.submit(f"{path}/import")
    text = await browser.submit(f"{path}/stop")
    assert "Stopped" in text or "Imported" in text
    created = int(re.search(r"Created ([\d,]+)", text)[1].replace(",", ""))  # type: ignore[index]
    assert created == len(await ids_of(console))


async def test_a_button_for_a_check_does_not_stop_the_import_that_another_operator_has_begun(
    console: Console, browser: Browser
) -> None:
    path = await checked(browser, GOOD)
    stale = {"form_token": browser.form_token, "seen": "checking"}
    async with console.sources.imports._one_at_a_time:  # so that the import waits
        await browser.submit(f"{path}/import")
        now = browser.hidden("seen")
        page = await browser.submit(f"{path}/stop", stale, 409)
        assert "orders.jsonl was checked meanwhile, and is being imported; stop the import if it is wrong." in page
        await browser.get(path)
        assert "importing" == now == browser.hidden("seen")
    await finished(browser, path)
    assert [1, 2] == await ids_of(console)


@pytest.mark.parametrize("action", ["check", "import", "stop", "discard"])
async def test_an_upload_that_another_operator_has_just_deleted_is_not_used(
    action: str, console: Console, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    path = await checked(browser, GOOD)
    job = console.sources.imports.find(path.rpartition("/")[2])
    claim = console.store.sessions.claim_form

    async def delete_first(*arguments: Any) -> bool:
        await console.sources.imports.discard(job)
        return await claim(*arguments)

    with patch.object(console.store.sessions, "claim_form", delete_first):
        response = await browser.http.post(f"/console{path}/{action}", data={"form_token": browser.form_token})
    assert 404 == response.status_code
    assert "There is no such upload here." in text_of(response)
    assert None is job.work
    assert "import process failed" not in caplog.messages


async def test_an_import_whose_process_ends_unexpectedly_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, browser: Browser
) -> None:
    for program, code, shown in (
        ("raise OSError", None, "The import ended unexpectedly; the log of the server says why."),
        ("raise SystemExit(9)", 9, "The import process ended with exit code 9. Upload"),
        ("import os; os.kill(os.getpid(), 9)", -9, "killed by signal 9, probably because memory ran out. Free memory,"),
        ("import os; os.kill(os.getpid(), 15)", -15, "The import process was ended by signal 15. Upload"),
    ):
        monkeypatch.setattr(import_process, "_PETSTORE", (sys.executable, "-c", program))
        assert shown in await finished(browser, await upload(browser, GOOD))
        assert ("import process failed", code) == (caplog.messages[-1], getattr(caplog.records[-1], "exit_code", None))
    program = 'import sys; sys.exit(\'A warning.\\n\' + \'{"code": "usage", "message": "No."}\')'
    monkeypatch.setattr(import_process, "_PETSTORE", (sys.executable, "-c", program))
    assert "2. What importing it would do No." in await finished(browser, await upload(browser, GOOD))
    monkeypatch.setattr(import_process, "_PETSTORE", ("/missing/petstore",))
    assert "The import cannot be started: No such file" in await finished(browser, await upload(browser, GOOD))


async def test_the_url_of_the_store_and_what_an_operator_enters_are_not_arguments_of_the_process(
    tmp_path: Path, file_store: Stores, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    seen = "[sys.argv[2:], dict(os.environ), sys.stdin.read(), os.getsid(0) == os.getpid()]"
    program = f"import os, sys; open(sys.argv[1], 'w').write(repr({seen})); print('{{}}')"
    monkeypatch.setattr(import_process, "_PETSTORE", (sys.executable, "-c", program, str(tmp_path / "seen")))
    path = await checked(browser, GOOD)
    assert "checked" in await check(
        browser, path, {"column-0": "id", "zone": "a;$(touch x) b", "replace_placed": "yes"}
    )
    arguments, environ, _, has_own_session = ast.literal_eval((tmp_path / "seen").read_text())
    assert file_store.url == environ["PETSTORE_DATABASE_URL"]
    assert has_own_session
    assert ["orders", "import", "-", "--json", "--progress"] == arguments
    options = json.loads(environ[import_process._OPTIONS])
    expected = ["--replace-placed", "--timezone=a;$(touch x) b", "--format=jsonl", "--dry-run", "--bounded"]
    assert {"--name=orders.jsonl", "--as=ada", *expected} <= set(options)
    await imported(browser, path)
    assert GOOD.decode() == ast.literal_eval((tmp_path / "seen").read_text())[2], "it is read from its beginning again"


def test_the_command_of_an_import_is_that_of_this_installation() -> None:
    environ = {**os.environ, import_process._OPTIONS: '["--version"]'}
    assert __version__.encode() in subprocess.check_output(import_process._PETSTORE, env=environ, timeout=PATIENCE)


async def test_a_check_keeps_as_many_rejected_rows_as_an_import_and_the_page_says_how_many_there_were(
    browser: Browser,
) -> None:
    path = await checked(browser, b"[" + b"0," * 10_499 + b"0]", "orders.json")
    page = await browser.get(path)
    assert "Rejected 10,500" in page
    assert "Download the first 10,000 with reasons" in page
    assert "The first 50 of 10,500." in page
    assert 10_000 == (await browser.get(f"{path}/rejects")).count("not a record")


async def test_uploads_are_read_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console, browser: Browser
) -> None:
    at_work, allowed = tmp_path / "at work", tmp_path / "allowed"
    program = (
        "import os, sys, time; os.mkdir(sys.argv[1])\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
        "os.rmdir(sys.argv[1]); print('{}')"
    )
    monkeypatch.setattr(import_process, "_PETSTORE", (sys.executable, "-c", program, str(at_work), str(allowed)))
    monkeypatch.setattr(imports, "_FIRST_LOOK_SECONDS", 0.0)
    *paths, stopped, deleted = [await upload(browser, GOOD) for _ in "abcd"]
    begun, again = r"0% of the file, after \d+ s\.", "This page is loaded again every 2 seconds. Stop loading it again"
    nothing = f"Checking what the file would do 0% {begun} {again} Created 0 Replaced 0 Unchanged 0 Rejected 0"
    assert re.search(nothing, await browser.get(paths[1]))
    assert "Nothing was changed." in await browser.submit(f"{stopped}/stop")
    job = console.sources.imports.all()[0]
    await browser.submit(f"{deleted}/discard")
    assert "stopped" == job.state
    allowed.touch()
    assert [False, False] == ["It failed" in await finished(browser, path) for path in paths]


async def test_an_import_that_does_not_end_when_it_is_stopped_is_killed(
    monkeypatch: pytest.MonkeyPatch, console: Console, browser: Browser
) -> None:
    path = await checked(browser, GOOD)
    monkeypatch.setattr(import_process, "_STOP_SECONDS", 0.1)
    program = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        """print('{"import": "import-1"}', flush=True); signal.pause()"""
    )
    monkeypatch.setattr(import_process, "_PETSTORE", (sys.executable, "-c", program))
    [job] = console.sources.imports.all()
    job.begun.clear()  # the check has set it
    expiry = job.expiry
    await browser.submit(f"{path}/import")
    assert expiry is not None
    assert expiry.cancelled()
    assert "stop the import first. Show the upload as it is now" in await browser.submit(f"{path}/discard", status=409)
    await job.begun.wait()
    await console.store.imports.set_state("orders", "import-1", BY, "a.csv", state="interrupted")
    assert "Interrupted" in await browser.submit(f"{path}/stop")


SHOP_FILES = Path(__file__).parent / "data" / "shops"


def chosen(browser: Browser) -> dict[str, str]:
    """What is chosen on the last page for each list of choices, by its label."""
    labels = dict(re.findall(r'<label for="([^"]+)">(?:<bdi>)?(.*?)(?:</bdi>)?</label>', browser.page))
    selects = re.findall(r'<select id="([^"]+)".*?<option value="([^"]*)" selected>', browser.page)
    return {unescape(labels[name]): unescape(value) for name, value in selects if name in labels}


async def test_the_export_of_a_shop_is_recognised_and_imported(console: Console, browser: Browser) -> None:
    file = SHOP_FILES / "shopify.csv"
    path = await checked(browser, file.read_bytes(), file.name)
    text = await browser.get(path)
    assert "Created 4 Replaced 0 Unchanged 0 Rejected 0" in text
    assert "#1001/2 the next one 502 1 2026-09-04 13:00:00 shipped" in text
    found = chosen(browser)
    assert ("shopify", "reference", "shipDate,shipped") == (found["Shop"], found["Name"], found["Fulfilled at"])
    await imported(browser, path)
    orders = await console.store.orders.find(4)
    assert ("#1003", Status.PENDING) == (orders.reference, orders.status)


async def test_the_statuses_of_a_file_are_chosen_and_those_to_choose_come_first(browser: Browser) -> None:
    file = SHOP_FILES / "magento-full.csv"
    path = await checked(browser, file.read_bytes(), file.name)
    assert "Created 3 Replaced 0 Unchanged 0 Rejected 1" in await browser.get(path)
    assert "choose a status for “Closed”" in browser.text
    labels = re.findall(r'<label for="status-\d+"><bdi>(.*?)</bdi>', browser.page)
    assert ["Closed", "Canceled", "Complete", "On Hold"] == labels
    found = chosen(browser)
    assert ("", "cancelled", "shipped", "pending") == tuple(found.get(label, "") for label in labels)
    columns = {"column-0": "reference", "column-7": "status"}
    statuses = {"status-Closed": "cancelled", "status-Complete": "shipped", "status-On Hold": "pending"}
    assert "Created 4 Replaced 0 Unchanged 0 Rejected 0" in await check(browser, path, {**columns, **statuses})
    assert "Created" not in await check(browser, path, {**columns, **statuses, "zone": "Berlin"})
    assert "cancelled" == chosen(browser)["Closed"], "a wrong setting loses no choice"


async def test_an_empty_and_a_long_status_have_a_choice_that_stays(browser: Browser) -> None:
    long = "x" * 100
    path = await checked(browser, f'[{{"id": 1, "status": " "}}, {{"id": 2, "status": "{long}"}}]'.encode(), "a.json")
    text = await browser.get(path)
    assert "choose a status for “”, or give null" in text
    assert "choose a status for “*”" in text
    assert ["“” (empty)", "“*” (every other)"] == re.findall(r'<label for="status-\d+">(.*?)</label>', browser.page)
    choices = {"column-0": "id", "column-1": "status", "status-": "shipped", "status-*": "pending"}
    for _ in range(2):
        assert "Created 2 Replaced 0 Unchanged 0 Rejected 0" in await check(browser, path, choices)
        assert '<option value="shipped" selected>' in browser.page
        choices = {name: value for name, value in choices.items() if f'name="{name}"' in browser.page}
    assert 4 == len(choices)


async def test_the_choices_for_another_shop_are_filled_in(browser: Browser) -> None:
    file = SHOP_FILES / "etsy-orders.csv"
    path = await checked(browser, file.read_bytes(), file.name)
    assert "has no UTC offset" in await browser.get(path)
    await check(browser, path, {"shop": "", "fill": "yes", "zone": "UTC"})
    assert "reference" not in chosen(browser).values()
    text = await check(browser, path, {"shop": "etsy", "fill": "yes", "zone": "UTC"})
    assert "Created 2 Replaced 0 Unchanged 0 Rejected 0" in text
    assert {"Order ID": "reference", "Number of Items": "quantity"}.items() <= chosen(browser).items()
