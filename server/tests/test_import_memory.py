"""The memory of an import is bounded, whatever a JSON array contains."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.imports import json_rows
from petstore_server.imports.files import MAX_ROW_BYTES, TOO_LONG
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.reading import groups, read_ahead
from testing.forked_work import measure_reading
from testing.import_files import batches, read, reason_of
from testing.preloaded import forking
from testing.subprocesses import PATIENCE

SIZE = 2 << 20  # its objects in an array take 50 MB when all are decoded
MOST = 32 << 20  # besides the file: a window of it, decoded


def array(begin: bytes, part: bytes, end: bytes) -> bytes:
    return begin + part * ((SIZE - len(begin) - len(end)) // len(part)) + end


HOSTILE = {
    "numbers": (array(b"[", b"0,", b"0]"), ""),
    "objects": (array(b"[", b"{},", b"{}]"), ""),
    "numbers in an element": (array(b"[[", b"0,", b"0]]"), ""),
    "objects in an element": (array(b"[[", b"{},", b"{}]]"), ""),
    "one object": (array(b'[{"id":1', b',"a":0', b"}]"), ""),
    "one text": (array(b'["', b"},", b'"]'), ""),
    "escapes": (array(b'["', b"\\\\", b'"]'), ""),
    "blanks": (array(b'[{"id":1', b" ", b"}]"), ""),
    "nested": (b"[" * (SIZE // 2) + b"]" * (SIZE // 2), "nested too deeply"),
    "numbers without an end": (array(b"[", b"0,", b""), "truncated in line 1"),
    "objects without an end": (array(b"[", b'{"id":1},\n', b""), "truncated in line"),
    "not an array": (array(b'{"id":1', b',"a":0', b"}"), "does not begin with"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_memory_of_an_import_is_bounded(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    file = tmp_path / "orders.json"
    file.write_bytes(content)
    found, sent = forking().Pipe(duplex=False)
    process = forking().Process(target=measure_reading, args=(str(file), sent))
    process.start()
    assert found.poll(PATIENCE)
    used, reason = found.recv()
    process.join(PATIENCE)
    assert message in reason
    assert bool(message) == bool(reason)
    assert used < 1.5 * SIZE + MOST


@pytest.mark.anyio
async def test_what_is_stored_at_a_time_is_bounded_in_bytes() -> None:
    content = b'{"id":1,"note":"%b"}\n' % (b"x" * 1_000_000) * 40
    found = read_ahead(batches(io.BytesIO(content), ReadOptions("jsonl")))
    sizes = [len(group.records) + len(group.rejects) async for group in groups(found, lambda: 16_000)]
    assert 9 == max(sizes)  # of a MB each, beyond 8 MiB


ELEMENTS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"id": st.integers(1, 99)}, optional={"petId": st.integers(0, 9)}),
        st.recursive(
            st.sampled_from(["},", '"', "\\", "[{", "]", " ", "\n,", 0, None, "é"]),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from('a}"\\,'), inner, max_size=3),
        ),
    ),
    max_size=20,
)


@given(ELEMENTS, st.sampled_from([None, 0, 1]), st.sampled_from([(",", ":"), (" ,", ": "), (",\n", ":")]))
def test_an_array_is_read_the_same_in_windows(
    elements: list[object], indent: int | None, separators: tuple[str, str]
) -> None:
    content = b"\n" + json.dumps(elements, indent=indent, separators=separators, ensure_ascii=False).encode()
    whole = read(content, "json")
    for size in (1, 7, 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_rows, "_WINDOW_BYTES", size)
            assert whole == read(content, "json")


def test_elements_around_an_overlong_one_are_read() -> None:
    overlong = b'{"id":2,%b"note":"},"}' % (b"\n" * MAX_ROW_BYTES)
    found = read(b'[{"id":1},\n' + overlong + b',\n {"id":3}' + b"\n \t\r" * MAX_ROW_BYTES + b', 7,\n{"id":4}]', "json")
    assert [1, 3, 4] == [order.id for order in found.orders]
    third, fourth = 3 + MAX_ROW_BYTES, 4 + 2 * MAX_ROW_BYTES
    assert [(2, f"The row {TOO_LONG}."), (fourth - 1, "The row is not a record: Expected `object`, got `int`.")] == [
        (reject.line, reason_of(reject)) for reject in found.rejects
    ]
    assert [1, third, fourth] == [row.line for row in found.rows]
    assert 65_536 == len(found.rejects[0].raw)
