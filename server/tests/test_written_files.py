"""What each command that writes a file does where links, other users' files, or other users' directories are."""

import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from petstore_server.domain.timestamps import file_stamp
from testing import needs
from testing.cli import CommandLine, Done
from testing.process import petstore_process

OTHER = 65_534  # a user who is not the one of this test
NOW = float(int(time.time()))
NEW, EXISTS = 0, 6

COMMANDS = {
    "db backup": ["db", "backup", "{target}"],
    "db backup --keep": ["db", "backup", "{base}.db", "--keep", "2"],
    "db restore": ["db", "restore", "{folder}/backup", "--yes"],
    "orders export": ["orders", "export", "--format", "jsonl", "{target}"],
    "orders export --force": ["orders", "export", "--format", "jsonl", "--force", "{target}"],
    "orders import": ["orders", "import", "-", "--rejects", "{target}"],
    "orders import --force": ["orders", "import", "-", "--force", "--rejects", "{target}"],
    "pets import": ["pets", "import", "-", "--rejects", "{target}"],
    "pets import --force": ["pets", "import", "-", "--force", "--rejects", "{target}"],
    "imports show": ["imports", "show", "{run}", "--rejects", "{target}"],
    "imports show --force": ["imports", "show", "{run}", "--force", "--rejects", "{target}"],
}


class Writer:
    """Runs a command that writes `target`, in a `folder` next to which `victim` and `loot` are."""

    def __init__(self, command: str, root: Path) -> None:
        self.command = command
        self.folder, self.victim, self.loot = root / "folder", root / "victim", root / "loot"
        self.folder.mkdir()
        self.loot.mkdir()
        self.victim.write_text("precious")
        self.victim.chmod(0o640)
        own = self.folder if "restore" in command else root
        self.cli = CommandLine(own / "store.db")
        self._run = self.cli("orders", "import", "-", "--json", stdin='{"id":1}\nx\n').json()["import"]
        self.cli.must("db", "backup", str(self.folder / "backup"))
        names = {
            "db backup --keep": f"new-{file_stamp(NOW)}.db",
            "db restore": f"store.db.before-restore-{file_stamp(NOW)}",
        }
        self.target = self.folder / names.get(command, "new")
        self.forced, self.dated = "--force" in command, command in names

    def __call__(self) -> Done:
        places = {"target": self.target, "base": self.folder / "new", "folder": self.folder, "run": self._run}
        arguments = [part.format(**places) for part in COMMANDS[self.command]]
        return self.cli(*arguments, stdin='{"id":1}\nx\n' if "import" in arguments else None)

    def unharmed(self) -> None:
        """Assert that nothing went where a link led, and that nothing is left of what was begun."""
        assert ("precious", 0o640) == (self.victim.read_text(), stat.S_IMODE(self.victim.stat().st_mode))
        assert [] == list(self.loot.iterdir())
        assert [] == list(self.folder.glob(".petstore-*"))

    def wrote(self) -> None:
        """Assert that the target is a new file that only its owner can read."""
        found = self.target.lstat()
        assert (stat.S_IFREG | 0o600, 1, os.geteuid()) == (found.st_mode, found.st_nlink, found.st_uid)
        assert found.st_size > len("precious")


@pytest.fixture(name="writer", params=COMMANDS)
def _writer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    before = os.umask(0o022)
    writer = Writer(request.param, tmp_path)
    monkeypatch.setattr(time, "time", lambda: NOW)
    yield writer
    os.umask(before)


def succeeded(done: Done) -> bool:
    """Whether a command did its work; the row that is rejected here is no failure."""
    return done.code in (0, 3)


def test_what_a_command_writes_can_be_read_by_its_owner_only(writer: Writer) -> None:
    done = writer()
    assert succeeded(done), done.err
    writer.wrote()
    writer.unharmed()


def link(writer: Writer, target: Path) -> None:
    target.symlink_to(writer.victim)


def dangling_link(writer: Writer, target: Path) -> None:
    target.symlink_to(writer.loot / "stolen")


def link_to_directory(writer: Writer, target: Path) -> None:
    target.symlink_to(writer.loot)


def hard_link(writer: Writer, target: Path) -> None:
    target.hardlink_to(writer.victim)


def file(writer: Writer, target: Path) -> None:
    target.write_text("previous")


def identity(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_mode, found.st_ino, found.st_size


Plant = Callable[[Writer, Path], None]
LINKS: list[Plant] = [link, dangling_link, link_to_directory]
PLANTED: list[Plant] = [*LINKS, hard_link, file]


@pytest.mark.parametrize("plant", PLANTED)
def test_no_command_writes_through_what_has_the_name_already(writer: Writer, plant: Plant) -> None:
    plant(writer, writer.target)
    planted = identity(writer.target)
    done = writer()
    if writer.dated:  # it takes the next free name
        assert succeeded(done), done.err
        assert planted == identity(writer.target)
    elif plant in LINKS or not writer.forced:
        directory = plant is link_to_directory  # which is wrong usage
        assert (2 if directory else EXISTS) == done.code, done.err
        assert "is a directory" in done.err if directory else "choose another name" in done.err
        assert planted == identity(writer.target)
    else:
        assert succeeded(done), done.err
        writer.wrote()
    writer.unharmed()


@pytest.mark.parametrize("plant", [link, dangling_link, hard_link, file])
@pytest.mark.parametrize("call", ["mkdir", "fsync", "link", "rename"])
def test_what_gets_the_name_between_two_calls_is_not_written_through(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, plant: Plant, call: str
) -> None:
    real, planted = getattr(os, call), list[None]()

    def after_planting(*arguments: Any, **options: Any) -> Any:
        if not planted:
            planted.append(None)
            plant(writer, writer.target)
        return real(*arguments, **options)

    monkeypatch.setattr(os, call, after_planting)
    done = writer()
    if planted and not (writer.forced and succeeded(done)):
        assert (EXISTS, True) == (done.code, "choose another name" in done.err), done.err
        assert writer.target.is_symlink() or writer.target.read_text() in ("previous", "precious")
    else:
        assert succeeded(done), done.err
        writer.wrote()
    writer.unharmed()


def test_a_directory_that_takes_the_place_of_the_private_one_is_not_used(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def swapped(name: Any, *arguments: Any, **options: Any) -> None:
        make(name, *arguments, **options)
        if str(name).startswith(".petstore-"):
            (writer.folder / name).rename(writer.folder / "taken")
            (writer.folder / name).symlink_to(writer.loot)

    monkeypatch.setattr(os, "mkdir", swapped)
    done = writer()
    assert 1 == done.code, done.err
    assert not writer.target.exists()
    for left in writer.folder.glob(".petstore-*"):
        assert left.is_symlink()
        left.unlink()
    writer.unharmed()


@pytest.mark.parametrize("shared", ["owner", "group", "world", "parent", "link"])
def test_root_writes_no_file_where_another_user_can_swap_it(writer: Writer, shared: str, tmp_path: Path) -> None:
    needs.root()
    place = tmp_path if shared == "parent" else writer.folder
    if shared == "link":
        place = tmp_path / "way"
        place.symlink_to(writer.folder)
        os.chown(place, OTHER, OTHER, follow_symlinks=False)
        writer.folder = place
        writer.target = place / writer.target.name
    elif shared in ("owner", "parent"):
        os.chown(place, OTHER, OTHER)
    else:
        place.chmod(0o770 if shared == "group" else 0o707)
    before = sorted(writer.folder.iterdir())
    done = writer()
    if shared == "link" and writer.command == "db restore":  # the store itself is where its link leads
        assert succeeded(done), done.err
        return
    assert (2, True) == (done.code, f"Other users can change {place}, so root writes no file" in done.err), done.err
    named = shared not in ("group", "world")
    assert named == (f"run this as its owner (sudo -u {pwd.getpwuid(OTHER).pw_name})" in done.err)
    assert before == [path for path in sorted(writer.folder.iterdir()) if not path.name.endswith(("-wal", "-shm"))]
    os.chown(tmp_path, 0, 0)
    writer.unharmed()


def test_root_may_write_into_a_sticky_directory(writer: Writer) -> None:
    """As /tmp is one: in it others can neither remove nor rename what is not theirs."""
    needs.root()
    writer.folder.chmod(0o1777)
    assert succeeded(writer())
    writer.wrote()
    writer.unharmed()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_user_who_is_not_root_may_write_where_other_users_can(command: str) -> None:
    needs.root()
    with TemporaryDirectory() as name:  # which other users can reach, unlike pytest's
        root = Path(name)
        writer = Writer(command, root)
        assert succeeded(writer())  # now all modules are loaded
        for path in (root, *root.rglob("*")):
            os.chown(path, OTHER - 1, OTHER - 1)
        os.chown(writer.folder, OTHER, OTHER)
        writer.folder.chmod(0o777)
        for path in (writer.target, *writer.folder.glob("*before*"), *writer.folder.glob("new*")):
            path.unlink(missing_ok=True)
        os.seteuid(OTHER - 1)
        try:
            done = writer()
            written = next(iter([*writer.folder.glob("*before*"), *writer.folder.glob("new*")])).lstat()
        finally:
            os.seteuid(0)
        assert succeeded(done), done.err
        assert (OTHER - 1, 0o600) == (written.st_uid, stat.S_IMODE(written.st_mode))
        writer.unharmed()


def test_an_export_that_fails_leaves_what_it_would_have_replaced(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    (folder / "orders.jsonl").write_text("the source of an import")
    nowhere = f"sqlite:///{tmp_path}/nowhere.db"
    cli("orders", "export", str(folder / "orders.jsonl"), "--force", PETSTORE_DATABASE_URL=nowhere).fails(1)
    assert "the source of an import" == (folder / "orders.jsonl").read_text()
    assert [folder / "orders.jsonl"] == list(folder.iterdir())
    cli.must("orders", "export", str(folder / f"{'a' * 250}.csv"))  # shorter than the longest name
    done = cli("orders", "export", "/proc/orders.csv")  # where no file can be created
    done.fails(1, "petstore: /proc/orders.csv: No such file or directory.\n")


def test_a_link_of_this_user_may_be_on_the_way(writer: Writer, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to("folder")
    writer.target = tmp_path / "way" / writer.target.name
    writer.folder = tmp_path / "way"
    assert succeeded(writer())
    writer.wrote()


@pytest.mark.parametrize("command", ["orders export", "orders import", "imports show"])
def test_a_pipe_of_another_user_is_not_written_to(command: str, tmp_path: Path) -> None:
    needs.root()
    writer = Writer(command, tmp_path)
    os.mkfifo(writer.target)
    os.chown(writer.target, OTHER, OTHER)
    assert (EXISTS, True) == ((done := writer()).code, "is a pipe of another user" in done.err), done.err
    os.chown(writer.target, 0, 0)
    reader = os.open(writer.target, os.O_RDONLY | os.O_NONBLOCK)
    assert succeeded(writer())
    assert b'"id":1' in os.read(reader, 10_000).replace(b" ", b"") or "export" not in command
    os.close(reader)
    assert stat.S_ISFIFO(writer.target.lstat().st_mode)


def test_a_pipe_to_which_the_rejects_cannot_be_written_stays(tmp_path: Path) -> None:
    writer = Writer("orders import", tmp_path)
    os.mkfifo(writer.target)
    reader = os.open(writer.target, os.O_RDONLY | os.O_NONBLOCK)
    real = os.fdopen

    def without_reader(descriptor: int, *arguments: Any, **options: Any) -> Any:
        os.close(reader)
        return real(descriptor, *arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fdopen", without_reader)
        done = writer()
    assert not succeeded(done)
    assert stat.S_ISFIFO(writer.target.lstat().st_mode)


def test_rejected_rows_do_not_replace_the_file_that_is_on_stdin(tmp_path: Path) -> None:
    cli, file = CommandLine(tmp_path / "store.db"), tmp_path / "orders.jsonl"
    file.write_text('{"id":1}\nx\n')
    with file.open("rb") as stdin:
        done = cli("orders", "import", "-", "--rejects", str(file), "--force", stdin=stdin)
    done.fails(2, "--rejects names the file that is imported; choose another file.")
    assert '{"id":1}\nx\n' == file.read_text()


@pytest.mark.parametrize(
    "arguments", [("orders", "import", "{folder}/orders.jsonl", "--dry-run"), ("serve", "--demo", "--port", "0")]
)
def test_temporary_files_are_not_put_where_others_can_take_them_away(
    cli: CommandLine, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    place.chmod(0o777)
    (tmp_path / "orders.jsonl").write_text('{"id":1}')
    words = [part.format(folder=tmp_path) for part in arguments]
    done = petstore_process(cli.store, *words, TMPDIR=str(place))
    expected = f"Other users can change {place}, so temporary files are not safe there; set TMPDIR: choose"
    assert (2, True) == (done.returncode, expected in done.stderr), done.stderr
    assert [] == list(place.iterdir())
    place.chmod(0o1777)
    if "serve" not in arguments:
        assert 0 == petstore_process(cli.store, *words, TMPDIR=str(place)).returncode
    assert [] == list(place.iterdir())


def test_a_link_to_the_store_may_not_be_one_of_another_user_in_a_shared_directory(tmp_path: Path) -> None:
    needs.root()
    CommandLine(tmp_path / "own" / "store.db", make=False)
    shared, other = tmp_path / "shared", tmp_path / "other"
    for folder in (shared, other):
        folder.mkdir()
    shared.chmod(0o1777)
    os.chown(other, OTHER, OTHER)
    cli = CommandLine(shared / "store.db", make=False)
    (shared / "store.db").symlink_to(other / "store.db")
    os.chown(shared / "store.db", OTHER, OTHER, follow_symlinks=False)
    for command in (
        ["db", "migrate"],
        ["db", "check"],
        ["orders", "list"],
        ["db", "backup", str(tmp_path / "copy.db")],
    ):
        cli(*command).fails(1, "is a link of another user in a shared directory")
    assert [] == list(other.iterdir())
    os.chown(shared / "store.db", 0, 0, follow_symlinks=False)
    cli.must("db", "migrate")
    assert (other / "store.db").exists()


def test_backups_of_other_users_do_not_count_and_are_not_removed(tmp_path: Path) -> None:
    """In a shared directory, others could otherwise have the good ones removed."""
    needs.root()
    writer = Writer("db backup --keep", tmp_path)
    writer.folder.chmod(0o1777)
    planted = [writer.folder / f"new-20201120T09300{number}Z.db" for number in range(3)]
    for path in planted:
        path.touch()
    os.chown(planted[2], OTHER, OTHER)
    planted[1].unlink()
    planted[1].symlink_to(writer.victim)
    assert succeeded(writer())
    assert all(path.is_symlink() or path.exists() for path in planted)


@pytest.mark.parametrize("command", [["migrate"], ["restore", "{copy}", "--yes"], ["backup", "{folder}/new.db"]])
def test_a_file_of_sqlite_in_a_directory_whose_name_is_not_utf8_is_not_made(
    cli: CommandLine, tmp_path: Path, command: list[str]
) -> None:
    copy, folder = tmp_path / "copy.db", tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    cli.must("db", "backup", str(copy))
    store = cli.store if "backup" in command else folder / "store.db"
    words = [part.format(copy=copy, folder=folder) for part in command]
    cli("db", *words, PETSTORE_DATABASE_URL=f"sqlite:///{store}").fails(
        1, "the name of a file that SQLite opens must be UTF-8"
    )
    assert [] == list(folder.iterdir())


@pytest.mark.parametrize("command", [*COMMANDS])
def test_a_file_whose_name_is_not_utf8_is_written_or_refused(command: str, tmp_path: Path) -> None:
    writer = Writer(command, tmp_path)
    writer.target = writer.folder / os.fsdecode(b"caf\xe9")
    done = writer()
    assert "internal error" not in done.err
    assert succeeded(done) or not writer.target.exists()
    writer.unharmed()
