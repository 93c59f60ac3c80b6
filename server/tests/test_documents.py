"""Checks the documents against the code: tables, paths, links and messages. Runs their examples."""

import itertools
import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from petstore_server import __version__
from petstore_server.api.access_log import EVENT as ACCESS_LOG_EVENT
from petstore_server.api.contracts import CONTRACTS
from petstore_server.api.errors import STATUS
from petstore_server.cli.main import petstore as command_line
from petstore_server.settings import SETTINGS
from petstore_server.telemetry.logs import LIBRARY_EVENT
from testing import needs
from testing.awkward_proxy import awkward_proxy
from testing.cases import for_all
from testing.documents import (
    DOCUMENTS,
    ROOT,
    SOURCE,
    Example,
    block,
    examples,
    headings,
    links,
    name,
    prose,
    read_yaml,
    run_script,
    table,
)
from testing.forked_commands import petstore_in
from testing.generated_tables import REFERENCE, TABLES, every_command, subcommands, summary, with_table
from testing.process import EVERY_SCOPE, Server, environment, new_key, petstore, serving
from testing.service import Service, bearer

ARCHITECTURE = ROOT / "docs" / "architecture.md"
INTERFACE = ROOT / "docs" / "decisions" / "0001-interface.md"
SPEC = ROOT / "docs" / "spec.md"
GUIDE = SOURCE / "api" / "guide"
USING = GUIDE / "guide.md"
EXAMPLE_ORDERS = ROOT / "docs" / "examples" / "orders.csv"
WITH_EXAMPLES = [document for document in DOCUMENTS if examples(document)]
ORDERS_CSV = "id,petId,quantity,shipDate,complete,status\n1,1,2,,,\n2,2,1,,,\n3,2,1,,,\n4,1,1,,,shipped\n"
WEBHOOKS = {"PETSTORE_WEBHOOK_SECRET": "text of at least 32 bytes, for tests"}
HOSTS = {
    "collector.internal:4318",
    "proxy.internal:3128",
    "127.0.0.1:8080",
    "127.0.0.1:8081",
    "127.0.0.1:9000",
    "shop.example",
    "api.example.com",
    "ops.example.com",
    "$DOMAIN",
    "$STAGING",
}

every_document = for_all(DOCUMENTS)


def test_the_first_line_of_every_module_says_what_it_is_for() -> None:
    modules = list(SOURCE.rglob("*.py"))
    assert [] == [name(file) for file in modules if not re.fullmatch(r"\S.{10,110}[.:].*", summary(file))]


def test_every_place_on_the_paths_of_the_architecture_exists() -> None:
    section = _section(ARCHITECTURE, "Six paths")
    paths = [line for line in section.splitlines() if "→" in line]
    assert ["a list", "a cancel", "a ship", "a placed order", "a console page", "a command"] == [
        line.split("|")[1].strip() for line in paths
    ]
    code = "\n".join(file.read_text() for file in SOURCE.rglob("*.py"))
    for place in re.findall(r"`([\w.]+)`", section.replace(".py`", "`")):
        owner, _, member = place.rpartition(".")
        assert not owner or re.search(rf"^class {owner}\b", code, re.MULTILINE), place
        assert re.search(rf"^ *(?:async )?def {member}\b|^{member}(?::.*)? = ", code, re.MULTILINE), place
    for member, module in re.findall(r"`(\w+)` in `([\w/.]+)`", section):
        assert re.search(rf"^ *(?:async )?def {member}\b|^{member}\b.* = ", (SOURCE / module).read_text(), re.MULTILINE)


def test_layers_in_the_documentation_equal_those_the_linter_enforces() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert contracts[0]["layers"] == block(ARCHITECTURE, "layers").splitlines()


@pytest.mark.parametrize("which", TABLES)
def test_generated_tables_match_the_code(which: str) -> None:
    document, make = TABLES[which]
    documented = document.read_text()
    assert with_table(documented, which) == documented, (
        f"The table of {which} differs; regenerate it: .venv/bin/python -m testing.generated_tables"
    )
    assert f"<!-- {which} -->\n{make()}" in documented


def test_every_error_code_is_documented_with_its_status() -> None:
    documented = {(code, int(status)) for code, listed, _, _ in table(USING, "errors") for status in listed.split(", ")}
    assert {(error.code, status) for error, status in STATUS.items()} == documented


def test_one_sentence_in_the_guide_and_the_contracts_says_whether_error_codes_may_be_added() -> None:
    sentence = (
        "The set of error codes is closed in version 1, where a new code needs a new version, and may grow in "
        "version 2."
    )
    documents = [GUIDE / "versions.md", ROOT / "docs/decisions/0001-interface.md"]
    contracts = [SOURCE / "api" / f"{name}.yaml" for name in CONTRACTS.values()]
    for document in documents + contracts:
        assert 1 == " ".join(document.read_text().split()).count(sentence), document


def test_every_set_that_may_grow_is_named_as_one_whose_growth_is_compatible() -> None:
    """Except for those of webhooks, which are experimental."""
    paragraph = (GUIDE / "versions.md").read_text().partition("**Compatible changes**")[2].partition("\n\n")[0]
    schemas = read_yaml(SOURCE / "api/openapi-v2.yaml")["components"]["schemas"]
    growing = {
        name
        for schema, described in schemas.items()
        for name, field in described.get("properties", {}).items()
        if "x-extensible-enum" in field.get("items", field) and not schema.startswith("Webhook")
    }
    words = {"name": "names of windows", "scopes": "scopes"}
    assert {"status", "orders"} <= growing
    assert [] == sorted(name for name in growing if words.get(name, f"`{name}`") not in paragraph)


@pytest.mark.settings(PETSTORE_WEBHOOK_SECRET="the text from which all secrets are derived")
async def test_every_metric_is_documented_with_its_labels(service: Service) -> None:
    documented = {metric: set(labels.replace(",", "").split()) for metric, labels, _ in table(REFERENCE, "metrics")}
    elsewhere = "workers", "worker_restarts_total", "postgresql_connections", "postgresql_max_connections"
    others: dict[str, set[str]] = {f"petstore_{name}": set() for name in elsewhere}  # with workers, with PostgreSQL
    await service.client.get("/v1/store/orders", headers=bearer(await service.key()))
    collected = others | {
        metric.name + "_total" * (metric.type == "counter"): {
            label for sample in metric.samples for label in sample.labels if label != "le"
        }
        for metric in await service.application.collect()
        if not metric.name.endswith("_created")
    }
    assert collected.keys() - documented.keys() == set(), "docs/reference.md has no row of this metric"
    assert collected == documented


def test_every_log_event_is_documented_with_its_level() -> None:
    code = "\n".join(file.read_text() for file in SOURCE.rglob("*.py"))
    written = {(event, level) for level, event in re.findall(r'(?:log|get_logger\(\))\.([a-z]+)\(\s*"([^"]+)"', code)}
    written |= {(ACCESS_LOG_EVENT, "info"), (LIBRARY_EVENT, "warning")}  # written as records
    assert written == {(event, level) for event, level, _ in table(REFERENCE, "events")}


def test_every_message_under_troubleshooting_exists() -> None:
    code = "\n".join(file.read_text() for file in SOURCE.rglob("*.py"))
    messages = re.sub(r'"\n\s*f?"', "", code).replace("`", "")
    shown = re.findall(r"^\| `([^`]+)` \|", _section(REFERENCE, "Troubleshooting"), re.MULTILINE)
    parts = {part.strip() for message in shown for part in message.split("…")}
    assert {"Cannot listen on"} <= parts
    outdated = sorted(part for part in parts if part not in messages)
    assert [] == outdated, "Correct these messages in docs/reference.md, Troubleshooting."


def _section(document: Path, heading: str) -> str:
    return document.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@every_document
def test_links_have_a_target(document: Path) -> None:
    broken = [
        link
        for link in links(document)
        if not link.target.exists() or (link.heading and link.heading not in headings(link.target))
    ]
    assert [] == broken


@every_document
def test_lists_begin_after_an_empty_line(document: Path) -> None:
    """Text that is wrapped before `-` or a number with a point would be shown as a list."""
    lines = prose(document).splitlines()
    item = re.compile(r"[-*+] |\d+[.)] ")
    in_list = False
    begun_within = []
    for before, line in itertools.pairwise(["", *lines]):
        begins = item.match(line)
        if begins and before and not in_list:
            begun_within.append(line)
        in_list = bool(begins) or (in_list and (not line or line.startswith(" ")))
    assert [] == begun_within


@every_document
def test_headings_follow_an_empty_line_and_no_line_repeats_the_one_before(document: Path) -> None:
    lines = prose(document).splitlines()
    pairs = list(itertools.pairwise(lines))
    assert [] == [line for before, line in pairs if re.match("#{2,} ", line) and before]
    text = [(before, line) for before, line in pairs if len(line) > 60 and not line.startswith("|")]
    assert [] == [line for before, line in text if before[:60] == line[:60]]


@every_document
def test_named_modules_exist(document: Path) -> None:
    named = set(re.findall(r"[`>]([\w/]+\.py)[`\"]|\b(bench/\w+\.py)", document.read_text()))
    folders = (SOURCE, ROOT, ROOT / "server" / "tests", ROOT / "client" / "src" / "petstore_client")
    missing = [one or other for one, other in named if not any((at / (one or other)).is_file() for at in folders)]
    assert [] == missing


@every_document
def test_named_commands_and_make_targets_exist(document: Path) -> None:
    text = document.read_text()
    unknown = [
        typed
        for typed in re.findall(r"(?:^|`|\$\()petstore ([a-z][a-z -]*)", text, re.MULTILINE)
        if not _is_known(typed)
    ]
    assert [] == unknown
    phony = (ROOT / "Makefile").read_text().partition(".PHONY:")[2].partition("\n")[0].split()
    assert set() == set(re.findall(r"(?:^ *|`|\$ )make ([a-z-]+)", text, re.MULTILINE)) - set(phony)


def _is_known(typed: str) -> bool:
    """Whether the words begin with a command: true for `keys list acme`, false for `keys lists`."""
    words = typed.split()
    found = subcommands(command_line).get(words[0])
    if isinstance(found, click.Group) and len(words) > 1:
        return words[1] in found.commands or hasattr(found, "default_command")
    return found is not None


@every_document
def test_named_settings_exist(document: Path) -> None:
    known = {name for setting in SETTINGS for name in setting.names}
    known |= {"PETSTORE_API_KEY", "PETSTORE_COMPLETE", "PETSTORE_REDIS_SERVICE_HOST", "PETSTORE_COPY_TO_URL_FILE"}
    known |= {str(option.envvar) for _, command in every_command() for option in command.params if option.envvar}
    named = set(re.findall(r"PETSTORE_[A-Z_]*[A-Z]", document.read_text()))
    assert set() == named - known


@for_all([document for document in DOCUMENTS if document.parent in (ROOT / "docs", ROOT / "deploy")])
def test_no_command_for_a_shared_machine_has_a_secret_among_its_arguments(document: Path) -> None:
    secret = r"curl [^|]*Bearer|\$\{?PETSTORE_(DATABASE|REDIS|COPY_TO)_URL|--\S+.*://[^/\s]*:[^/\s@]+@|--requirepass"
    blocks = re.findall(r"^```sh\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    assert [] == [line for line in lines if re.search(secret, line)]


@every_document
def test_documents_contain_no_machine_paths_or_hosts(document: Path) -> None:
    text = document.read_text()
    assert [] == re.findall(r"(?<![\w.])/(?:work|home|root|mnt|tmp)\b\S*", text)
    assert set() == set(re.findall(r"https?://([^/\s`\"')]+)", text)) - HOSTS


def test_every_cited_decision_is_explained() -> None:
    explained = re.findall(r"^## D(\d+) ", INTERFACE.read_text(), re.MULTILINE)
    assert [str(number) for number in range(1, len(explained) + 1)] == explained
    unexplained = [
        (name(file), number) for file, number in _citations(r"(?<![\w%\\])D(\d{1,2})\b") if number not in explained
    ]
    assert [] == unexplained


def test_every_cited_rule_of_the_interface_exists() -> None:
    sections = re.findall(r"^## S(\d) ", SPEC.read_text(), re.MULTILINE)
    rules = re.findall(r"^- \*\*S(\d\.\d+)\*\* ", SPEC.read_text(), re.MULTILINE)
    assert len(rules) == len(set(rules))
    cited = list(_citations(r"(?<![\w%\\-])S([1-9](?:\.\d+)?)\b"))
    assert cited
    assert [] == [(name(file), number) for file, number in cited if number not in {*sections, *rules}]


def _citations(pattern: str) -> Iterator[tuple[Path, str]]:
    """The files that match a pattern, each with the match's group."""
    places = [ROOT / place for place in ("server", "client", "tests", "bench", "docs")]
    for file in sorted(
        file for place in places for kind in ("py", "sql", "lua", "yaml", "md") for file in place.rglob(f"*.{kind}")
    ):
        for number in re.findall(pattern, file.read_text()):
            yield file, number


def test_ci_runs_every_check_that_contributors_run() -> None:
    assert "\n    make test\n" in (ROOT / "README.md").read_text()
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    steps = re.findall(r"^step make ([a-z-]+)", script.read_text(), re.MULTILINE)
    assert ["test", "check", "check-locks", "test-system", "test-clients", "torture", "bench"] == steps


def test_the_readme_is_short_and_its_bullets_have_numbers_of_the_pages_that_they_link_to() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text()
    assert len(text.splitlines()) <= 110
    bullets = re.findall(r"^- \*\*.+\n(?:  .+\n)*", text, re.MULTILINE)
    assert 6 == len(bullets)
    for bullet in bullets:
        numbers = set(re.findall(r"\d[\d,]*", bullet))
        pages = [link.target.read_text() for link in links(readme) if f"({link.target.relative_to(ROOT)}" in bullet]
        assert numbers & set(re.findall(r"\d[\d,]*", "".join(pages))), bullet


def test_the_newest_release_of_each_changelog_has_the_versions_of_the_code_and_the_contracts() -> None:
    client = re.search(r'__version__ = "(.+)"', (ROOT / "client/src/petstore_client/_version.py").read_text())
    assert client
    for folder, version in (("server", __version__), ("client", client[1])):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        assert version == project["version"]
    contracts = [read_yaml(SOURCE / "api" / f"{name}.yaml")["info"]["version"] for name in CONTRACTS.values()]
    released = re.compile(r"^## (.+) - \d{4}-\d\d-\d\d$", re.MULTILINE)
    for changelog, version in (
        (ROOT / "CHANGELOG.md", __version__),
        (ROOT / "client" / "CHANGELOG.md", client[1]),
        (GUIDE / "changelog.md", " and ".join(contracts)),
    ):
        assert version == released.findall(changelog.read_text())[0]
    assert f"**Status:** {__version__}," in (ROOT / "README.md").read_text()
    images = "".join(file.read_text() for file in (ROOT / "deploy/kubernetes").glob("*.yaml"))
    assert [__version__] * 2 == re.findall(r"(?:newTag: |/petstore:)([\d.]+)", images)
    for document in (ROOT / "README.md", ROOT / "docs" / "install.md"):
        assert {__version__} == set(re.findall(r"`petstore-([\d.]+)\.tar\.gz`", document.read_text()))


def test_the_readme_counts_the_direct_dependencies() -> None:
    project = tomllib.loads((ROOT / "server" / "pyproject.toml").read_text())["project"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"The server has {len(project['dependencies'])} direct dependencies" in readme


@pytest.mark.parametrize("document", WITH_EXAMPLES, ids=name)
def test_examples_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs.program("curl")
    store, programs = tmp_path / "orders.db", tmp_path / "programs"
    programs.mkdir()
    with serving(store, **WEBHOOKS) as server, petstore_in(programs) as path:
        monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
        key = _fill(store)
        for number, example in enumerate(examples(document)):
            if example.serves:
                _serve(example, tmp_path / str(number))
            else:
                shown = _run(example.script, store, server, key)
                assert example.statuses == re.findall(r"HTTP/1\.1 (\d{3})", shown), shown


def test_the_examples_of_the_guide_run_through_a_proxy_that_capitalises_header_names_and_breaks_a_connection(
    tmp_path: Path,
) -> None:
    """Each example that repeats its requests has its first connection broken."""
    needs.program("curl")
    store, repeating = tmp_path / "orders.db", 0
    with serving(store) as server:
        key = _fill(store)
        for example in examples(GUIDE / "guide.md"):
            cut = ("GET",) if "--retry" in example.script else ()
            repeating += bool(cut)
            with awkward_proxy(server.api, cut) as proxy:
                shown = _run(example.script, store, server, key, api=proxy)
            assert example.statuses == re.findall(r"HTTP/1\.1 (\d{3})", shown), shown
    assert 3 == repeating


def _fill(store: Path) -> str:
    """Import the orders and pets that the examples expect; return a key."""
    pets = petstore(store, "pets", "import", "-", "--format", "csv", text="id,name,tag\n1,Biscuit,dog\n")
    orders = petstore(store, "orders", "import", "-", "--format", "csv", text=ORDERS_CSV)
    assert (0, 0) == (pets.returncode, orders.returncode), orders.stderr
    return new_key(store, "reader", options=EVERY_SCOPE)[0]


def _run(script: str, store: Path, server: Server, key: str, api: str | None = None) -> str:
    """Run an example as if a reader had pasted it, with another address of the API if one is given; its output."""
    api = api or server.api
    script = script.replace("http://127.0.0.1:8080", api).replace("http://127.0.0.1:8081", server.admin)
    ports = {"PETSTORE_PORT": str(server.port), "PETSTORE_ADMIN_PORT": server.admin.rpartition(":")[2]}
    return _shell(script, store, KEY=key, API=f"{api}/v1", **ports)


def _serve(example: Example, folder: Path) -> None:
    """Run an example that ends with `petstore serve`, and list the example orders with the key that it printed."""
    shutil.copytree(EXAMPLE_ORDERS.parent, folder / EXAMPLE_ORDERS.parent.relative_to(ROOT))
    script, last, rest = example.script.rpartition("petstore serve\n")
    assert ("petstore serve\n", "") == (last, rest)
    key = re.findall(r"^pso_live_\w+$", _shell(script, folder / "orders.db"), re.MULTILINE)
    assert 1 == len(key)
    with serving(folder / "orders.db") as server, server.client(key[0]) as client:
        expected = [int(line.partition(",")[0]) for line in EXAMPLE_ORDERS.read_text().splitlines()[1:]]
        assert expected == [order["id"] for order in client.get("/v1/store/orders").json()]


def _shell(script: str, store: Path, **more: str) -> str:
    environ = environment(store, **{"PETSTORE_PORT": "0", "PETSTORE_ADMIN_PORT": "0", **more})
    return run_script(script, environ, store.parent).stdout


def test_the_tests_in_the_page_for_contributors_are_real_ones() -> None:
    shown = re.findall(
        r"`(server/tests/\S+)`\):\n\n```\w+\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
    )
    assert 2 == len(shown)
    assert [] == [path for path, text in shown if text not in (ROOT / path).read_text()]
