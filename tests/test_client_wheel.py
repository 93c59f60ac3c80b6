"""The distribution: the wheel is complete, and works without the server and the sources."""

import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

CLIENT = Path(__file__).resolve().parents[1] / "client"

USE_ALL_OF_IT = """
import asyncio, importlib.util
import petstore_client
from petstore_client.testing import FakePetstore, RateLimited

assert importlib.util.find_spec("petstore_server") is None
fake = FakePetstore([petstore_client.Order(id=1), petstore_client.Order(id=2)])
fake.then(RateLimited(30))
with fake.client() as petstore:
    assert [1, 2] == [order.id for order in petstore.iter_orders()]
    petstore.cancel_order(1)

async def main():
    async with fake.async_client() as petstore:
        return (await petstore.v2.place_order(pet_id=3, quantity=1)).id

assert 3 == asyncio.run(main())
print(petstore_client.__file__)
"""


@pytest.fixture(name="wheel", scope="module")
def _wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=CLIENT, capture_output=True, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_contains_the_package_its_types_its_requirements_and_its_addresses(wheel: Path) -> None:
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
    urls = dict(re.findall(r"^Project-URL: (\w+), (https://\S+)$", text, re.MULTILINE))
    assert {"Documentation", "Changelog", "Source"} == urls.keys()
    assert urls["Documentation"].endswith("/docs/client")
    assert "Description-Content-Type: text/markdown" in text
    assert ["click"] == [line.partition(">")[0] for line in needed if "extra == 'cli'" in line]


def test_the_wheel_works_without_the_server_and_the_sources(wheel: Path, tmp_path: Path) -> None:
    # Editable distributions are found by .pth files, which are read for neither -S nor PYTHONPATH: only what the
    # wheel holds and third parties are there.
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    paths = sysconfig.get_paths()
    environ = {"PYTHONPATH": ":".join([str(tmp_path), paths["purelib"], paths["platlib"]]), "PATH": "/usr/bin:/bin"}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-S", "-W", "error", *arguments]
        return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert run("-c", USE_ALL_OF_IT).startswith(str(tmp_path))
    assert "orders" in run("-m", "petstore_client", "--help")


def test_the_tests_of_the_client_do_not_import_the_server() -> None:
    imported = re.compile(r"^\s*(?:from|import) petstore_server\b", re.MULTILINE)
    assert [] == [path.name for path in (CLIENT / "tests").rglob("*.py") if imported.search(path.read_text())]
