"""One file never replaces itself: what an import does with a row whose order an earlier row of the file has."""

import random
import re
from pathlib import Path

import pytest

from petstore_server.imports import files, seen
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.seen import SeenRows
from testing.cli import CommandLine
from testing.import_files import batches, generated

FORMS = {
    "csv": "id,quantity\n1,1\n2,1\n1,2\n1,1\n2,x\nx,9\n3,y\n3,1\n",
    "jsonl": '{"id":1,"quantity":1}\n{"id":2,"quantity":1}\n{"id":1,"quantity":2}\n{"id":1,"quantity":1}\n'
    '{"id":2,"quantity":"x"}\n{"id":"x"}\n{"id":3,"quantity":"y"}\n{"id":3,"quantity":1}\n',
}
FORMS["json"] = "[" + FORMS["jsonl"].strip().replace("\n", ",\n") + "]"


@pytest.mark.parametrize("rows", [1, 2, 1000])
@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize("file_format", FORMS)
def test_a_row_that_differs_from_an_earlier_one_of_its_order_is_rejected_with_the_line_of_that(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, file_format: str, dry: bool, rows: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", rows)
    options = ["--format", file_format, *["--dry-run"] * dry]
    done = cli("orders", "import", "-", *options, stdin=FORMS[file_format])
    first = 2 if file_format == "csv" else 1
    assert "2 created, 1 unchanged, 0 replaced, 5 rejected" in done.err
    assert f"2 rows: Order 1 is also in line {first};" in done.err, "also of a row that was rejected"
    again = cli("orders", "import", "-", *options, stdin=FORMS[file_format])
    created = "2 created, 1 unchanged" if dry else "0 created, 3 unchanged"
    assert f"{created}, 0 replaced, 5 rejected" in again.err


@pytest.mark.parametrize("file_format", FORMS)
def test_a_file_that_is_imported_again_changes_nothing_and_its_followers_get_no_event(
    cli: CommandLine, file_format: str
) -> None:
    cli("orders", "import", "-", "--format", file_format, stdin=FORMS[file_format])
    exported, changes = cli.must("orders", "export", "-").out, cli.must("audit", "--json").out
    cli("orders", "import", "-", "--format", file_format, stdin=FORMS[file_format])
    assert (exported, changes) == (cli.must("orders", "export", "-").out, cli.must("audit", "--json").out)


def test_rows_are_known_in_any_order_and_beyond_what_is_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "_CACHE_KIB", 64)
    numbers = random.Random(1)
    keys = [numbers.getrandbits(63) - 2**62 for _ in range(20_000)]
    rows = SeenRows()
    for at in range(0, len(keys), 1000):
        assert {} == rows.add(keys[at : at + 1000], range(at, at + 1000))
    assert {0: 7, 2: 19_999} == rows.add([keys[7], 5, keys[19_999]], [20_000, 20_001, 20_002])
    rows.close()


@pytest.mark.parametrize("most", [0, 1500, 10**6])
def test_ascending_keys_are_known_among_others_in_every_order(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(seen, "MAX_ASCENDING", most)
    numbers, rows = random.Random(most), SeenRows()
    first: dict[int, int] = {}
    for batch in range(60):
        start = numbers.randint(0, 200_000) if batch % 3 else 4_000 * batch
        keys = (
            sorted(numbers.sample(range(start, start + 3_000), 100)) if batch % 2 else numbers.sample(range(9_000), 100)
        )
        lines = range(100 * batch, 100 * batch + 100)
        expected = {place: first[key] for place, key in enumerate(keys) if key in first}
        assert expected == rows.add(keys, lines)
        first = {**dict(zip(keys, lines, strict=True)), **first}
    rows.close()


def test_no_room_for_the_rows_of_a_file_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = SeenRows()
    rows._database.execute("PRAGMA max_page_count = 4")
    with pytest.raises(OSError, match="No space left on device"):
        rows.add(range(100_000, 0, -1), range(100_000))


def test_the_identifiers_of_a_large_file_are_not_kept_in_memory() -> None:
    """Of 300,000 rows; measured by the process, because SQLite's memory is not Python's."""
    resident = re.compile(r"VmRSS:\s+(\d+)")

    def used() -> int:
        return int(resident.search(Path("/proc/self/status").read_text())[1])  # type: ignore[index]

    numbers = random.Random(1)
    content = generated(b'{"id":%d}\n' % numbers.getrandbits(60) for _ in range(300_000))
    before = used()
    assert 300_000 == sum(len(batch.records) for batch in batches(content, ReadOptions("jsonl")))
    assert used() - before < 24 << 10, "in KiB; a set of them takes 20 MB"
