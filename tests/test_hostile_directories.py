"""Commands of root in directories where another user changes names as fast as possible, whatever Linux protects."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from testing import needs
from testing.cli import CommandLine
from testing.forked_work import plant_in
from testing.preloaded import forking

pytestmark = pytest.mark.system

OTHER = 65_534
TRIES = 100
PROTECTIONS = ("symlinks", "hardlinks", "regular", "fifos")
COMMANDS = [
    ["db", "backup", "{folder}/new"],
    ["db", "backup", "{folder}/dated.db", "--keep", "2"],
    ["db", "restore", "{backup}", "--yes"],
    ["orders", "export", "{folder}/new", "--format", "jsonl"],
    ["orders", "export", "{folder}/new", "--format", "jsonl", "--force"],
    ["orders", "import", "-", "--rejects", "{folder}/new"],
    ["orders", "import", "-", "--force", "--rejects", "{folder}/new"],
]


@pytest.fixture(name="protected", params=[0, 1])
def _protected(request: pytest.FixtureRequest) -> Iterator[int]:
    """Whether Linux refuses links and files of others in sticky directories, as far as it can be set here."""
    needs.root()
    files = {Path(f"/proc/sys/fs/protected_{name}"): "" for name in PROTECTIONS}
    try:
        for file in files:
            files[file] = file.read_text()
            file.write_text(str(request.param))
    except OSError as error:
        if {text.strip() for text in files.values()} != {str(request.param)}:
            pytest.skip(f"this system cannot be set: {error}")
    try:
        yield request.param
    finally:
        for file, text in files.items():
            with suppress(OSError):
                file.write_text(text)


@contextmanager
def hostile(folder: Path, victim: Path, loot: Path) -> Iterator[None]:
    """Within this, another user attacks what is written to a folder."""
    process = forking().Process(target=plant_in, args=(folder, victim, loot, OTHER))
    process.start()
    try:
        yield
        assert process.is_alive()
    finally:
        process.kill()
        process.join()


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    """A directory that other users can reach, unlike pytest's."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    for name in ("folder", "loot", "own"):
        (place / name).mkdir()
    os.chown(place / "loot", OTHER, OTHER)
    (place / "victim").write_bytes(b"SQLite format 3\0" + b"precious" * 1000)
    yield place
    shutil.rmtree(place)


def require_private(folder: Path, victim: Path) -> None:
    """Assert that no other user can read what root has written to a folder, and remove it."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # the other user was quicker
            found = path.lstat()
            if found.st_uid == OTHER or os.path.samestat(found, victim.stat()):
                continue
            assert not found.st_mode & 0o077, path
            if not path.name.startswith("store.db") or "before" in path.name:
                path.unlink()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("sticky", [True, False], ids=["sticky", "foreign"])
@pytest.mark.usefixtures("protected")
def test_nothing_is_given_away_and_nothing_written_over(place: Path, command: list[str], sticky: bool) -> None:
    folder, victim, loot = place / "folder", place / "victim", place / "loot"
    cli = CommandLine((folder if "restore" in command else place / "own") / "store.db")
    cli.must("orders", "import", "-", stdin='{"id":1,"petId":7}\n')
    cli.must("db", "backup", str(folder / "backup"))
    backup = (folder / "backup").rename(place / "own" / "backup")
    if sticky:
        folder.chmod(0o1777)
    else:
        os.chown(folder, OTHER, OTHER)
    before, codes = victim.read_bytes(), set[int]()
    words = [part.format(folder=folder, backup=backup) for part in command]
    with hostile(folder, victim, loot):
        for _ in range(TRIES if sticky else TRIES // 20):
            done = cli(*words, stdin='{"id":2}\nbad\n')
            codes.add(done.code)
            assert "internal error" not in done.err
            require_private(folder, victim)
    assert (before, 0, 0o644) == (victim.read_bytes(), victim.stat().st_uid, stat.S_IMODE(victim.stat().st_mode))
    assert not (loot / "stolen").exists()
    for path in loot.iterdir():  # what the other user could take away is not a file that root has written
        assert path.lstat().st_uid == OTHER or os.path.samestat(path.lstat(), victim.stat()), path
    assert sticky or not codes & {0, 3}  # refused, for whichever reason was seen first
