"""The distribution: the wheel is complete, and its tests pass without the server."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CLIENT = ROOT / "client"


@pytest.fixture(name="wheel", scope="module")
def _wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=CLIENT, capture_output=True, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_contains_the_package_its_types_and_its_requirements(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        text = archive.read(metadata).decode()
    shipped = {name for name in names if name.startswith("petstore_client/")}
    source = CLIENT / "src"
    assert {
        str(path.relative_to(source))
        for path in (source / "petstore_client").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } == shipped
    assert "petstore_client/py.typed" in shipped
    needed = [line.removeprefix("Requires-Dist: ") for line in text.splitlines() if line.startswith("Requires-Dist")]
    assert ["httpx2", "msgspec"] == [line.partition(">")[0] for line in needed if "extra" not in line]
    assert ["click"] == [line.partition(">")[0] for line in needed if "extra == 'cli'" in line]


def test_the_installed_wheel_passes_its_tests_without_the_server(wheel: Path, tmp_path: Path) -> None:
    # Editable distributions are found by .pth files, which are read for neither -S nor PYTHONPATH: only what the
    # wheel holds and third parties are there.
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    places = [
        tmp_path / "installed",
        CLIENT / "tests",
        sysconfig.get_paths()["purelib"],
        sysconfig.get_paths()["platlib"],
    ]
    environ = {
        "PYTHONPATH": ":".join(map(str, places)),
        "PATH": "/usr/bin:/bin",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # most of the plugins here are for other tests
        "SSL_CERT_DIR": os.devnull,  # every client would load the system's certificates, which no test needs
    }
    absent = subprocess.run(
        [sys.executable, "-S", "-c", "import petstore_server"], env=environ, capture_output=True, text=True, check=False
    )
    assert "No module named 'petstore_server'" in absent.stderr
    command = [
        sys.executable,
        "-S",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "anyio.pytest_plugin",
        "-c",
        "/dev/null",
    ]
    command += ["--import-mode=importlib", "--rootdir", str(CLIENT), "-W", "error", str(CLIENT / "tests")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert 0 == done.returncode, done.stdout[-4000:] + done.stderr[-2000:]
    where = subprocess.run(
        [sys.executable, "-S", "-c", "import petstore_client; print(petstore_client.__file__)"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(tmp_path))
