"""The files of a release: what `make dist` writes, and that they install in a new Debian without the repository."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from petstore_server import __version__, commit
from testing.debian import debian
from testing.documents import ROOT

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

_SERVER, _CLIENT = f"petstore_server-{__version__}", f"petstore_client-{__version__}"
_WHOLE = f"petstore-{__version__}"
_LOCKED = ("petstore-server", "petstore-server-otel", "petstore-client")
_BUNDLED = "swagger-ui-bundle.js.LICENSE.txt"
_INSTALL = f"""
if command -v cc; then exit 1; fi
cd release
sha256sum --check SHA256SUMS
python3 -m venv ../server
../server/bin/pip install --quiet --require-hashes -r petstore-server.lock
../server/bin/pip install --quiet --no-deps {_SERVER}-py3-none-any.whl
python3 -m venv ../client
../client/bin/pip install --quiet --require-hashes -r petstore-client.lock
../client/bin/pip install --quiet --no-deps {_CLIENT}-py3-none-any.whl
cd ..
server/bin/petstore --version
client/bin/petstore-client --version
python3 smoke.py server/bin/petstore
"""


def write_distributions(folder: Path, **environ: str) -> Path:
    command = ["make", "dist", f"DIST={folder}", f"VENV={sys.prefix}"]
    subprocess.run(command, cwd=ROOT, env=os.environ | environ, capture_output=True, check=True)
    return folder


@pytest.fixture(name="release", scope="module")
def _release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_distributions(tmp_path_factory.mktemp("release"))


def test_another_run_writes_the_same_bytes(release: Path, tmp_path: Path) -> None:
    another = write_distributions(tmp_path / "another", PYTHONHASHSEED="7", TZ="Asia/Tokyo", LC_ALL="C")
    assert digests(release) == digests(another)


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def test_the_release_has_wheels_archives_locks_and_bills_of_materials_with_their_sums(release: Path) -> None:
    archives = {f"{name}{end}" for name in (_SERVER, _CLIENT) for end in (".tar.gz", "-py3-none-any.whl")}
    described = {f"{name}.{end}" for name in _LOCKED for end in ("lock", "cdx.json")} | {f"{_WHOLE}.tar.gz"}
    sums = dict(line.split("  ")[::-1] for line in (release / "SHA256SUMS").read_text().splitlines())
    assert archives | described == sums.keys()
    assert sums | {"SHA256SUMS": digests(release)["SHA256SUMS"]} == digests(release)


@pytest.mark.parametrize("name", _LOCKED)
def test_a_bill_of_materials_lists_each_locked_package(release: Path, name: str) -> None:
    bill = json.loads((release / f"{name}.cdx.json").read_bytes())
    component = bill["metadata"]["component"]
    assert ("CycloneDX", __version__) == (bill["bomFormat"], component["version"])
    assert name.removesuffix("-otel") == component["name"]
    lines = (release / f"{name}.lock").read_text().splitlines()
    locked = {tuple(line.split(" ")[0].split("==")) for line in lines if line[:1].isalpha()}
    assert locked == {(part["name"], part["version"]) for part in bill["components"]}
    assert len(locked) > 5


def test_archives_hold_sources_license_commit_and_swagger_ui_but_no_tests(release: Path) -> None:
    with tarfile.open(release / f"{_SERVER}.tar.gz") as archive:
        names = set(archive.getnames())
        written = archive.extractfile(f"{_SERVER}/src/petstore_server/commit.txt")
        assert written
        assert written.read().decode().startswith(commit())
    assert {f"{_SERVER}/LICENSE", f"{_SERVER}/src/petstore_server/py.typed"} <= names
    assert f"{_SERVER}/src/petstore_server/api/page/swagger/swagger-ui.css" in names
    assert not [name for name in names if "tests" in name]
    with tarfile.open(release / f"{_CLIENT}.tar.gz") as archive:
        assert {f"{_CLIENT}/LICENSE", f"{_CLIENT}/CHANGELOG.md"} <= set(archive.getnames())


def test_a_wheel_has_each_license_that_it_declares(release: Path) -> None:
    with zipfile.ZipFile(release / f"{_SERVER}-py3-none-any.whl") as wheel:
        info = f"{_SERVER}.dist-info"
        metadata = message_from_bytes(wheel.read(f"{info}/METADATA"))
        texts = {name: wheel.read(f"{info}/licenses/{name}").decode() for name in metadata.get_all("License-File", [])}
        shown = {name.rpartition("/")[2] for name in wheel.namelist() if "/page/swagger/" in name}
    assert "MIT AND Apache-2.0" == metadata["License-Expression"]
    swagger = {f"licenses/swagger-ui/{name}" for name in ("LICENSE", "NOTICE", _BUNDLED)}
    assert {"LICENSE", *swagger} == texts.keys()
    assert texts["LICENSE"].startswith("MIT License\n")
    assert "Apache License\n" in texts["licenses/swagger-ui/LICENSE"]
    assert {"LICENSE", "NOTICE", _BUNDLED} <= shown
    with zipfile.ZipFile(release / f"{_CLIENT}-py3-none-any.whl") as wheel:
        assert f"{_CLIENT}.dist-info/licenses/LICENSE" in wheel.namelist()


def test_the_archive_of_the_repository_has_what_operators_install_and_builds_wheels_that_name_the_commit(
    release: Path, tmp_path: Path
) -> None:
    with tarfile.open(release / f"{_WHOLE}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    named = {"README.md", "docs/install.md", "deploy/systemd/petstore.service", "requirements/run.lock", "Makefile"}
    assert all((tmp_path / _WHOLE / file).is_file() for file in named)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path / _WHOLE / "server", capture_output=True, check=True)
    with zipfile.ZipFile(tmp_path / f"{_SERVER}-py3-none-any.whl") as wheel:
        assert wheel.read("petstore_server/commit.txt").decode().startswith(commit())


@pytest.mark.parametrize("name", [_SERVER, _CLIENT])
def test_an_archive_builds_the_wheel_of_the_release(release: Path, tmp_path: Path, name: str) -> None:
    with tarfile.open(release / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(command, cwd=tmp_path / name, capture_output=True, check=True)
    (built,) = (tmp_path / name / "dist").iterdir()
    assert contents(release / built.name) == contents(built)


def contents(wheel: Path) -> dict[str, int]:
    """The checksums of what is in the wheel, but for its list of that, whose order differs."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist() if not each.filename.endswith("RECORD")}


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_the_wheels_work_in_a_new_debian(release: Path, suite: str) -> None:
    with debian(suite, "python3-venv") as root:
        shutil.copytree(release, root.path / "home/user/release")
        root.run("chmod -R a+rX /home/user")
        shutil.copy(ROOT / "tests/smoke.py", root.path / "home/user")
        root.add_wheels("scale-out.lock", "client.lock")
        shown = root.run(_INSTALL, user="user")
    assert f"petstore, version {__version__} (commit {commit()})" in shown
    assert f"petstore-client, version {__version__}" in shown
    assert shown.endswith("10 passed, 0 failed\n")
