"""Checks the files in deploy/ against the service: metrics, settings, ports, bounds and commands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from configparser import RawConfigParser
from ipaddress import ip_network
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from psycopg import sql
from redis import AuthenticationError, Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotConnectedError
from redis.retry import Retry

from petstore_server.api.contracts import CONTRACTS
from petstore_server.cli.main import Group
from petstore_server.cli.main import petstore as command_line
from petstore_server.domain.accounts import Plan
from petstore_server.domain.windows import Outcome
from petstore_server.runtime.servers import DRAIN_SECONDS
from petstore_server.server.messages import MAX_HEADERS
from petstore_server.server.scheduler import Deadlines
from petstore_server.settings import SETTINGS, read_settings
from petstore_server.settings.values import Network
from petstore_server.webhooks.addresses import Addresses, AddressRefused
from testing import needs
from testing.cases import for_all
from testing.documents import ROOT, headings, kubernetes_manifests, parse_yaml, read_yaml, table
from testing.engines import PostgresEngine
from testing.generated_tables import REFERENCE, subcommands
from testing.process import PETSTORE, environment, petstore
from testing.redis_engine import valkey_program
from testing.subprocesses import await_ready, free_port, kill

DEPLOY = ROOT / "deploy"
OPERATING = ROOT / "docs/operating.md"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.name != ".env")
DEFAULTS = read_settings({})
METRICS = {metric: set(labels.replace(",", "").split()) for metric, labels, _ in table(REFERENCE, "metrics")}
VALUES = {
    "operation": {"listOrders", "cancelOrder", "getPet", "none"},
    "outcome": {*(outcome.value for outcome in Outcome), "delivered", "failed"},
    "plan": {*(plan.value for plan in Plan), "none"},
    "window": {"minute", "day", "address", "none"},
    "kind": {"orders", "accounts", "keys"},
    "state": {"active", "failing", "stopped", "paused"},
}
PROMETHEUS_OWN = {"instance", "job", "le"}


def load(path: str) -> Any:
    return read_yaml(DEPLOY / path)


def rules() -> list[dict[str, Any]]:
    return [rule for group in load("prometheus/alerts.yml")["groups"] for rule in group["rules"]]


def alert_tests() -> list[dict[str, Any]]:
    return [case for name in ("alerts_test", "alerts_days_test") for case in load(f"prometheus/{name}.yml")["tests"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana/petstore.json").read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for case in alert_tests():
        for series in case["input_series"]:
            yield case["name"], series["series"]


def metric_of(name: str) -> str:
    """The metric of a time series name in an expression: a histogram has three such names."""
    return name if name in METRICS else re.sub(r"_(bucket|sum|count)$", "", name)


@for_all(sorted({expression for _, expression in expressions()}))
def test_expressions_use_existing_metrics_and_labels(expression: str) -> None:
    for name, selector in re.findall(r"\b(petstore_\w+)(?:\{([^}]*)\})?", expression):
        assert metric_of(name) in METRICS, "docs/reference.md has no row of this metric"
        for label, operator, text in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', selector):
            assert label in METRICS[metric_of(name)] | PROMETHEUS_OWN
            if label in VALUES and operator in ("=", "!="):
                assert text in VALUES[label]
    labels = {label for metric in METRICS.values() for label in metric} | PROMETHEUS_OWN
    grouped = ", ".join(re.findall(r"\bby \(([^)]*)\)", expression))
    assert set() == set(re.findall(r"\w+", grouped)) - labels


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {
        metric_of(name)
        for panel in panels()
        for target in panel.get("targets", [])
        for name in re.findall(r"\bpetstore_\w+", target["expr"])
    }
    assert METRICS.keys() - shown == set(), "deploy/grafana/petstore.json has no panel of a metric of docs/reference.md"
    assert shown - METRICS.keys() == set(), "docs/reference.md has no row of a metric of deploy/grafana/petstore.json"


def test_the_panel_of_webhooks_explains_the_states_that_it_shows() -> None:
    [text] = [panel["description"] for panel in panels() if "petstore_webhooks{" in str(panel.get("targets"))]
    shown, _, left_out = text.partition("Without")
    assert VALUES["state"] - {"active"} == {state for state in VALUES["state"] if f"{state}:" in shown}
    assert [] == [state for state in VALUES["state"] if state in left_out]


def test_every_alert_has_an_action_and_a_test_that_raises_it() -> None:
    assert [] == [rule["alert"] for rule in rules() if set(rule["annotations"]) != {"summary", "action"}]
    raised = {
        example["alertname"] for case in alert_tests() for example in case["alert_rule_test"] if "exp_alerts" in example
    }
    assert {rule["alert"] for rule in rules()} == raised


def test_every_alert_names_a_section_of_operating_and_has_its_row_for_who_is_on_duty() -> None:
    page = (ROOT / "docs/alerts.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| `Petstore")]
    assert f"each of the {len(lines)} alerts" in page
    rows = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in lines]
    shown = {name.strip("`"): (severity, then) for name, severity, command, then in rows if "`" in command}
    assert {rule["alert"] for rule in rules()} == shown.keys()
    for rule in rules():
        severity, then = shown[rule["alert"]]
        assert rule["labels"]["severity"] == severity
        (section,) = re.findall(r"See docs/operating\.md#([\w-]+)\.$", rule["annotations"]["action"])
        assert section in headings(ROOT / "docs/operating.md")
        assert f"(operating.md#{section})" in then


def test_dashboard_panels_have_unique_ids_and_do_not_overlap() -> None:
    numbers = [panel["id"] for panel in panels()]
    assert len(numbers) == len(set(numbers))
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels())
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert {"${datasource}"} == {panel["datasource"]["uid"] for panel in panels() if "targets" in panel}


def test_each_alert_keeps_the_job_by_which_those_of_staging_are_routed() -> None:
    for rule in rules():
        assert "sum(" not in rule["expr"], rule["alert"]
        kept = re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
        assert all(labels.startswith("job") for labels in kept), rule["alert"]


def test_prometheus_scrapes_the_admin_port_and_sends_alerts() -> None:
    (job,) = load("prometheus/prometheus.yml")["scrape_configs"]
    assert [f"{DEFAULTS.admin_host}:{DEFAULTS.admin_port}"] == job["static_configs"][0]["targets"]
    assert ["alertmanagers"] == list(load("prometheus/prometheus.yml")["alerting"])
    assert all(f'job="{job["job_name"]}"' in rule["expr"] for rule in rules() if "up{" in rule["expr"])


@for_all(FILES)
def test_named_settings_exist(file: Path) -> None:
    named = set(re.findall(r"PETSTORE_[A-Z_]*[A-Z]", file.read_text()))
    assert set() == named - {name for setting in SETTINGS for name in setting.names}


def test_the_service_accepts_the_environment_file() -> None:
    lines = (DEPLOY / "systemd/petstore.env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line.startswith("PETSTORE_"))
    scaled = dict(line[1:].split("=", 1) for line in lines if line.startswith("#PETSTORE_"))
    assert "sqlite:////var/lib/petstore/orders.db" == read_settings(given).database_url
    assert ["127.0.0.1/32"] == [str(network) for network in read_settings(given).trusted_proxies]
    assert read_settings({**given, **scaled}).database_url.startswith("postgresql://")
    assert read_settings({**given, **scaled}).redis_url is not None


def installed_as(file: str, places: Mapping[str, object]) -> str:
    """A script with other places than those of an installation."""
    script = (DEPLOY / file).read_text()
    for installed, here in places.items():
        assert 1 == script.count(installed)
        script = script.replace(installed, str(here))
    return script


def unit(name: str) -> RawConfigParser:
    """A unit of systemd."""
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd" / name)
    return parser


def test_the_command_passes_the_settings_of_the_service_as_systemd_does(tmp_path: Path) -> None:
    settings = tmp_path / "petstore.env"
    settings.write_text(
        "# PETSTORE_HOST=commented\n"
        "PETSTORE_DATABASE_URL=postgresql://petstore@db.internal/petstore?options=-c%20x=\n"
        "PETSTORE_CONTACT= $HOME \\ 'ask' \t\r\n"
        " \r\n"
        "PATH=/nowhere\n"
        "\t PETSTORE_ENVIRONMENT = staging\n"
        "PETSTORE_REDIS_URL=redis://redis.internal"  # an editor may leave the last line without a line feed
    )
    service = "setpriv --reuid petstore --regid petstore --init-groups /opt/petstore/bin/petstore"
    here = {service: "env", "/etc/petstore/petstore.env": settings, "/var/lib/petstore": tmp_path}
    script = installed_as("petstore", here)
    environ = {"PATH": os.environ["PATH"], "SUDO_USER": "ada"}
    shown = subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, check=True).stdout
    passed = dict(line.split("=", 1) for line in shown.splitlines())
    assert {
        "PETSTORE_DATABASE_URL": "postgresql://petstore@db.internal/petstore?options=-c%20x=",
        "PETSTORE_CONTACT": "$HOME \\ 'ask'",
        "PETSTORE_ENVIRONMENT": "staging",
        "PETSTORE_REDIS_URL": "redis://redis.internal",
    } == {name: value for name, value in passed.items() if name.startswith("PETSTORE_")}
    assert ("ada", str(tmp_path), os.environ["PATH"]) == (passed["SUDO_USER"], passed["HOME"], passed["PATH"])


def test_the_command_asks_for_sudo_where_the_settings_cannot_be_read(tmp_path: Path) -> None:
    script = installed_as("petstore", {"/etc/petstore/petstore.env": tmp_path / "petstore.env"})
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    message = f"petstore: Cannot read {tmp_path}/petstore.env; run this as root, or with sudo.\n"
    assert (1, message) == (done.returncode, done.stderr)


def test_the_unit_uses_its_state_directory_and_waits_for_the_drain() -> None:
    service = unit("petstore.service")["Service"]
    assert ["/opt/petstore/bin/petstore", "serve"] == shlex.split(service["ExecStart"])
    assert "petstore" == service["StateDirectory"]
    assert "/etc/petstore/petstore.env" == service["EnvironmentFile"]
    assert DEFAULTS.drain_delay_seconds + DRAIN_SECONDS + 4 < int(service["TimeoutStopSec"])


def megabytes(text: str) -> float:
    """What a limit such as 1500M or 2g stands for."""
    return float(text[:-1]) * {"m": 1, "g": 1_000}[text[-1].lower()]


@pytest.mark.parametrize("name", ["petstore.service", "petstore-backup.service"])
def test_a_unit_has_bounds_and_leaves_no_core_dump(name: str) -> None:
    service = unit(name)["Service"]
    assert "0" == service["LimitCORE"]
    assert megabytes(service["MemoryMax"]) > 0
    assert int(service["TasksMax"]) > 0


def test_the_bounds_of_the_service_are_those_that_the_page_explains_and_hold_a_million_orders() -> None:
    service, page = unit("petstore.service")["Service"], " ".join(OPERATING.read_text().split())
    pattern = r"(\d+) MB with a million orders.* took (\d+) MB more, .* (\d+) MB more, and in the kernel (\d+) MB"
    [needed] = re.findall(pattern, page)
    imported = 150 + 100 + 100  # an import, the JSON array, and its file where /tmp is in memory
    assert sum(map(int, needed)) + imported < megabytes(service["MemoryMax"])
    assert f"{megabytes(service['MemoryMax']):,.0f} MB (`MemoryMax`) and {service['TasksMax']} threads" in page
    compose = load("compose.yaml")["services"]["petstore"]
    more_workers = 800 * (int(compose["environment"]["PETSTORE_WORKERS"]) - 1)
    assert megabytes(service["MemoryMax"]) + more_workers <= megabytes(compose["mem_limit"])
    assert f"--memory {service['MemoryMax'].lower()} " in (DEPLOY / "Containerfile").read_text()


def test_the_backup_unit_runs_a_command_and_the_timer_starts_it(tmp_path: Path) -> None:
    service = unit("petstore-backup.service")["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert "/opt/petstore/bin/petstore" == program
    group = subcommands(command_line)[arguments[0]]
    assert isinstance(group, Group)
    file, *options = arguments[2:]
    here = str(tmp_path / Path(file).name)  # the unit's directory is made by systemd
    group.commands[arguments[1]].make_context("backup", [here, *options])  # raises if the arguments are wrong
    assert Path(file).parent.relative_to("/var/lib") == Path(service["StateDirectory"].split()[-1])
    assert "[Timer]\nOnCalendar=" in (DEPLOY / "systemd/petstore-backup.timer").read_text()


class PostgresTools:
    """The script for backups and the program that it calls, in a directory instead of their places."""

    def __init__(self, folder: Path, programs: Path, deployment: Mapping[str, str]) -> None:
        self.backups = folder / "backups"
        self._folder = folder
        (folder / "bin").mkdir()
        self.environ = {
            **environment(folder / "unused"),
            **deployment,
            "PATH": f"{folder / 'bin'}:{programs}:{os.environ['PATH']}",
        }
        here = {
            "/opt/petstore/bin/python3": sys.executable,
            "/etc/petstore/petstore.env": folder / "petstore.env",
            "/var/lib/petstore": folder,
            '["setpriv", "--reuid", "petstore", "--regid", "petstore", "--init-groups"]': '["env"]',
        }
        self._add("petstore-postgresql", installed_as("petstore_postgresql.py", here))
        called = {
            "/usr/local/bin/petstore-postgresql": "petstore-postgresql",
            "/usr/local/bin/petstore ": f"{PETSTORE} ",
        }
        self._backup = installed_as("postgresql-backup", {**called, "/var/backups/petstore": self.backups})

    def use(self, url: str) -> None:
        """Let the settings name this URL; other lines, their encoding, and blanks are what an editor left there."""
        lines = (
            "# Café",
            "PETSTORE_DATABASE_URL=sqlite:////var/lib/petstore/orders.db",
            f" PETSTORE_DATABASE_URL = {url} \t",
        )
        (self._folder / "petstore.env").write_text("".join(f"{line}\n" for line in lines), "latin-1")

    def use_file(self, file: Path) -> None:
        """Let the settings name a file with the URL."""
        (self._folder / "petstore.env").write_text(f"PETSTORE_DATABASE_URL_FILE={file}\n")

    def back_up(self) -> subprocess.CompletedProcess[str]:
        return self.run(self._backup)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", script], env=self.environ, capture_output=True, text=True, check=False)

    def watch(self, program: str) -> Path:
        """Let a program first write the arguments of all processes of the machine to a file."""
        seen = self._folder / f"{program}-seen"
        wrapper = f"#!/bin/sh\ncat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' > {seen}\n"
        self._add(program, f'{wrapper}exec {shutil.which(program, path=self.environ["PATH"])} "$@"\n')
        return seen

    def _add(self, name: str, text: str) -> None:
        (self._folder / "bin" / name).write_text(text)
        (self._folder / "bin" / name).chmod(0o755)


def test_the_backup_of_postgresql_is_recorded_only_if_it_succeeded(
    tmp_path: Path, postgres: PostgresEngine, scaled_out: dict[str, str]
) -> None:
    tools = PostgresTools(tmp_path, Path(postgres.program("pg_dump")).parent, scaled_out)

    def backed_up(url: str) -> tuple[bool, bool, int]:
        """Whether the script succeeded, whether the doctor knows of a backup, and how many files there are."""
        tools.use(url)
        done = tools.back_up()
        found = petstore(tmp_path / "unused", "doctor", "--json", **scaled_out).stdout
        [level] = [each["level"] for each in json.loads(found) if each["check"] == "backup"]
        return done.returncode == 0, level == "ok", len(list(tools.backups.iterdir()))

    assert (False, False, 0) == backed_up("postgresql://postgres@127.0.0.1:1/none")
    assert (True, True, 1) == backed_up(scaled_out["PETSTORE_DATABASE_URL"])
    [file] = tools.backups.glob("orders-*.dump")
    listed = subprocess.check_output([postgres.program("pg_restore"), "--list", file], text=True)
    assert "TABLE DATA petstore orders" in listed
    names = [f"orders-202511{day}T031500Z.dump" for day in range(10, 30)]
    for number, name in enumerate(names):
        (tools.backups / name).touch()
        if number != 1:
            os.utime(tools.backups / name, (0, 0))  # as a clock that is years ahead sees them
    assert (True, True, 15) == backed_up(scaled_out["PETSTORE_DATABASE_URL"])
    assert [names[1], *names[8:]] == sorted(each.name for each in tools.backups.glob("orders-2025*.dump"))


SECRET = "s3cr3t %41'\"\\=#é "
"""A password that is right only if nothing decodes, quotes or trims it once too often."""


LATER = "CREATE TABLE petstore.later (account_id bigint REFERENCES petstore.accounts)"
"""What a later release than that of the dump may have added."""


def test_no_other_user_sees_the_password_of_postgresql_during_a_backup_and_a_restore(tmp_path: Path) -> None:
    engine = PostgresEngine()
    try:
        rules = engine.data / "pg_hba.conf"
        rules.write_text(f"host all shop 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        engine.start()
        database = engine.new_database()
        with engine.admin() as admin:
            admin.execute(sql.SQL("CREATE ROLE shop LOGIN PASSWORD {}").format(SECRET))
            admin.execute(f"ALTER DATABASE {database} OWNER TO shop")
        places = f"127.0.0.1:1,127.0.0.1:{engine.port}"
        url = (
            f"postgresql://shop:{quote(SECRET, safe='')}@{places}/{database}?sslmode=prefer&options=-c%20work_mem%3D4MB"
        )
        store = {"PETSTORE_DATABASE_URL": url}
        assert 0 == petstore(tmp_path / "unused", "db", "migrate", **store).returncode
        assert 0 == petstore(tmp_path / "unused", "orders", "import", "-", text='{"id":1}', **store).returncode
        tools = PostgresTools(tmp_path, Path(engine.program("pg_dump")).parent, store)
        tools.use(url)
        seen = [tools.watch("pg_dump")]
        done = tools.back_up()
        assert 0 == done.returncode, done.stderr
        seen += [tools.watch("pg_restore"), tools.watch("psql")]
        show = "petstore-postgresql psql --tuples-only --command='SELECT epoch FROM petstore.store'"
        changed = f"TRUNCATE petstore.orders; {LATER}; SHOW work_mem"
        shown = tools.run(f"petstore-postgresql psql --tuples-only --command='{changed}'")
        assert "4MB" == shown.stdout.split()[-1], shown.stderr
        [drop] = re.findall(r"^petstore-postgresql psql .*DROP.*$", OPERATING.read_text(), re.MULTILINE)
        [restore] = re.findall(r"^(petstore-postgresql pg_restore .*) < \S+$", OPERATING.read_text(), re.MULTILINE)
        [begin] = re.findall(r"^petstore-postgresql psql .*UPDATE.*$", OPERATING.read_text(), re.MULTILINE)
        [file] = tools.backups.glob("orders-*.dump")
        dropped, done = tools.run(drop), tools.run(f"{restore} < {file}")
        assert (0, 0, "") == (dropped.returncode, done.returncode, done.stderr)
        # In a new cluster, a second dump gets tables with the identifiers of the first, which name its history too.
        epochs = {(tools.run(show).stdout, tools.run(begin).returncode) for _ in range(2)}
        assert (2, {0}) == (len(epochs), {code for _, code in epochs})
        assert "later" not in tools.run("petstore-postgresql psql --command='\\dt petstore.*'").stdout
        assert '{"id":1' in petstore(tmp_path / "unused", "orders", "export", "-", **store).stdout
        for each in seen:
            assert "pg_" in each.read_text() or "psql" in each.read_text()
            assert not re.search("s3cr3t", each.read_text())
    finally:
        engine.remove()


def test_the_tools_of_postgresql_read_the_file_that_the_settings_name(tmp_path: Path) -> None:
    tools = PostgresTools(tmp_path, tmp_path, {})
    tools.use_file(tmp_path / "url")
    missing = tools.run("petstore-postgresql env")
    assert 1 == missing.returncode
    assert f"PETSTORE_DATABASE_URL_FILE names {tmp_path}/url, which cannot be read: No such file" in missing.stderr
    (tmp_path / "url").write_text("postgresql://shop:s3cr3t@db.internal/petstore\n")
    assert "PGPASSWORD=s3cr3t\n" in tools.run("petstore-postgresql env").stdout


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sqlite:////var/lib/petstore/orders.db", "does not name PostgreSQL."),
        ("postgresql://shop:s3cr3t%zz@db.internal/petstore", "is not a URL that PostgreSQL accepts."),
        ("postgresql://shop:s3cr3t%FF@db.internal/petstore", "is not a URL that PostgreSQL accepts."),
        ("postgresql://shop:s3cr3t@db.internal/petstore?application_name=a%0Ahost%3Db", "or a line end."),
    ],
)
def test_the_tools_of_postgresql_refuse_another_store_and_show_no_password(
    tmp_path: Path, url: str, problem: str
) -> None:
    tools = PostgresTools(tmp_path, tmp_path, {})
    tools.use(url)
    done = tools.run("petstore-postgresql env")
    assert (1, True) == (done.returncode, done.stderr.endswith(f"{problem}\n"))
    assert "s3cr3t" not in done.stdout + done.stderr


@pytest.mark.system
@pytest.mark.parametrize("unit", ["petstore.service", "petstore-backup.service"])
def test_the_units_grant_little(unit: str) -> None:
    """Exposure of 1.5 of 10 at most."""
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=15", str(DEPLOY / "systemd" / unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout


def test_the_service_accepts_the_compose_file() -> None:
    services = load("compose.yaml")["services"]
    written = services["petstore"]["environment"]
    assert "${WEBHOOK_SECRET:-}" == written["PETSTORE_WEBHOOK_SECRET"]
    environ = {
        name: re.sub(r"\$\{[^}]*\}", "5ec4e7", value.replace("${WEBHOOK_SECRET:-}", ""))
        for name, value in written.items()
    }
    settings = read_settings({**image_environment(), **environ})
    assert settings.webhook_secret is None
    assert {urlsplit(settings.database_url).hostname, urlsplit(settings.redis_url).hostname} <= services.keys()
    assert services.keys() - {"petstore"} == services["petstore"]["depends_on"].keys()
    for service in services.values():
        assert (True, ["ALL"], ["no-new-privileges:true"]) == (
            service["read_only"],
            service["cap_drop"],
            service["security_opt"],
        )
        assert "cap_add" not in service
        assert service["pids_limit"] > 0
        assert megabytes(service["mem_limit"]) > 0
        assert all(":size=" in place for place in service.get("tmpfs", []))
        assert "PASSWORD" not in f"{service.get('command')} {service['healthcheck']['test']}"
    assert [f"127.0.0.1:{port}:{port}" for port in (settings.port, settings.admin_port)] == services["petstore"][
        "ports"
    ]


def test_the_redis_of_compose_reads_its_password_from_stdin(tmp_path: Path) -> None:
    """Among the arguments of a process, all users of the host would see it."""
    redis = load("compose.yaml")["services"]["redis"]
    *shell, script = redis["command"]
    port, began = free_port(), "exec redis-server -"
    assert script.startswith(f"{began} ")
    script = script.replace("$$", "$").replace(began, f"exec {valkey_program()} - --port {port} --bind 127.0.0.1", 1)
    environ = {**os.environ, **dict.fromkeys(redis["environment"], "s3cr3t")}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*shell, script], cwd=tmp_path, env=environ, stdout=log, stderr=log)
    at_once = Retry(NoBackoff(), 0)
    with Redis(port=port, password="s3cr3t", retry=at_once) as client, Redis(port=port) as stranger:
        try:
            await_ready(process, lambda: answers(client), tmp_path / "log")
            for name in ("appendonly", "maxmemory-policy"):
                assert client.config_get(name)[name] in ("yes", "noeviction")
            with pytest.raises(AuthenticationError):
                stranger.ping()
            assert b"s3cr3t" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        finally:
            kill(process)


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except NotConnectedError:
        return False


@pytest.mark.system  # podman-compose is installed for these tests only
def test_compose_reads_its_file_and_says_which_password_is_missing() -> None:
    needs.module("podman_compose")
    command = [sys.executable, "-m", "podman_compose", "-f", str(DEPLOY / "compose.yaml"), "config"]
    passwords = {"POSTGRES_PASSWORD": "5ec4e7", "REDIS_PASSWORD": "5ec4e8"}

    def read(**environ: str) -> subprocess.CompletedProcess[str]:
        environ |= {"PATH": os.environ["PATH"], "PODMAN_COMPOSE_DISABLE_DOTENV": "1"}
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    done = read(**passwords)
    assert 0 == done.returncode, done.stderr
    settings = parse_yaml(done.stdout)["services"]["petstore"]["environment"]
    assert "redis://:5ec4e8@redis:6379/0" == settings["PETSTORE_REDIS_URL"]
    assert not settings["PETSTORE_WEBHOOK_SECRET"]
    with_webhooks = parse_yaml(read(**passwords, WEBHOOK_SECRET="5ec4e9").stdout)["services"]["petstore"]["environment"]
    assert "5ec4e9" == with_webhooks["PETSTORE_WEBHOOK_SECRET"]
    for name in passwords:
        done = read(**passwords | {name: ""})
        assert (True, True) == (done.returncode != 0, "set it, in hexadecimal" in done.stderr), name


def test_compose_keeps_the_passwords_out_of_the_repository_and_the_image() -> None:
    assert "deploy/.env" in (ROOT / ".gitignore").read_text().splitlines()
    assert "*" == (DEPLOY / "Containerfile.dockerignore").read_text().split()[0]


def image_environment() -> dict[str, str]:
    return dict(re.findall(r"^ +(PETSTORE_\w+)=(\S+)", (DEPLOY / "Containerfile").read_text(), re.MULTILINE))


def test_the_image_runs_as_a_user_and_uses_existing_lock_files() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    settings = read_settings(image_environment())
    assert ("0.0.0.0", "0.0.0.0") == (settings.host, settings.admin_host)
    assert f"EXPOSE {settings.port} {settings.admin_port}\n" in text
    [installed] = re.findall(r"apt-get install -y --no-install-recommends (.*) \\\n +&& rm", text)
    assert {"ca-certificates", "python3"} == set(installed.split())
    [authorities] = re.findall(r"^ +SSL_CERT_FILE=(\S+) ", text, re.MULTILINE)  # for sslrootcert=system
    assert f"sslmode=verify-full&sslrootcert={authorities}\n" in (DEPLOY / "systemd/petstore.env").read_text()
    entry = [json.loads(words) for words in re.findall(r"^(?:ENTRYPOINT|CMD) (.+)$", text, re.MULTILINE)]
    assert [["petstore"], ["serve"]] == entry
    assert "serve" in subcommands(command_line)
    assert re.search(r"^USER \d+$", text, re.MULTILINE)
    assert ["requirements/run.lock", "requirements/$LOCK.lock"] == re.findall(r"requirements/\S+\.lock", text)
    assert ["scale-out"] == re.findall(r"^ARG LOCK=(\S+)$", text, re.MULTILINE)
    assert (ROOT / "requirements" / "otel.lock").exists()


def test_the_lock_file_for_several_hosts_adds_the_drivers_to_the_one_for_a_single_host() -> None:
    single, several, traced = locked("run"), locked("scale-out"), locked("otel")
    built_with = {"editables", "flask-swagger-ui", "hatchling"}
    assert built_with <= single.keys() - traced.keys(), "they are not installed where the service runs"
    assert locked("client").keys().isdisjoint({*built_with, "flask", "werkzeug"})
    assert direct_dependencies() <= several.keys()
    assert {name: single[name] for name in single.keys() & several.keys()}.items() <= several.items() <= traced.items()
    assert {"psycopg", "psycopg-binary", "redis"} <= several.keys() - single.keys()
    assert several.items() <= locked("dev").items() | single.items()


def direct_dependencies() -> set[str]:
    """The names of the libraries that the server always needs."""
    project = tomllib.loads((ROOT / "server/pyproject.toml").read_text())["project"]
    return {re.split(r"[><=;\[ ]", requirement)[0] for requirement in project["dependencies"]}


def locked(name: str) -> dict[str, str]:
    """The version of each package in a lock file."""
    text = (ROOT / f"requirements/{name}.lock").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_nginx_leaves_bounds_and_idle_connections_to_the_service() -> None:
    text = (DEPLOY / "nginx/petstore.conf").read_text()
    assert re.findall(r"^\s+server 127\.0\.0\.1:(\d+) max_fails=0;", text, re.MULTILINE) == [str(DEFAULTS.port)]
    buffer = re.search(r"large_client_header_buffers 4 (\d+)k;", text)
    assert buffer
    assert int(buffer[1]) * 1024 > MAX_HEADERS
    kept_open = re.findall(r"keepalive_timeout +(\d+)s;", text)
    assert int(kept_open[0]) < Deadlines().idle
    assert str(DEFAULTS.admin_port) not in re.sub(r"#.*", "", text)


def manifests_by_name(*, webhooks: bool) -> dict[str, dict[str, Any]]:
    found = kubernetes_manifests(webhooks=webhooks)
    return {f"{each['kind']} {each.get('metadata', {}).get('name', '')}": each for each in found}


@pytest.mark.parametrize("webhooks", [False, True])
def test_the_manifests_of_kubernetes_agree_with_the_service_and_with_each_other(webhooks: bool) -> None:
    manifests = manifests_by_name(webhooks=webhooks)
    deployment, job = manifests["Deployment petstore"], manifests["Job petstore-migrate"]
    secret, settings = manifests["Secret petstore"], manifests["ConfigMap petstore"]
    pods = [each["spec"]["template"]["spec"] for each in (deployment, job)]
    for pod in pods:
        [container] = pod["containers"]
        assert [{"configMapRef": {"name": "petstore"}}] == container["envFrom"]
        [mounted] = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "secrets"]
        assert {"petstore"} == {each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
        named = {text for name, text in settings["data"].items() if name.endswith("_FILE")}
        assert named == {f"{mounted}/{name}" for name in secret["stringData"]}
        assert not pod["enableServiceLinks"]
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"]
        assert f"--uid {pod['securityContext']['runAsUser']} " in (DEPLOY / "Containerfile").read_text()
    [container] = pods[0]["containers"]
    assert {"api": DEFAULTS.port, "admin": DEFAULTS.admin_port} == {
        each["name"]: each["containerPort"] for each in container["ports"]
    }
    delay = float(settings["data"]["PETSTORE_DRAIN_DELAY_SECONDS"])
    assert delay + DRAIN_SECONDS + 4 < pods[0]["terminationGracePeriodSeconds"]
    assert container["resources"]["limits"]["memory"] == f"{unit('petstore.service')['Service']['MemoryMax']}i"
    files = {file.name for file in (DEPLOY / "kubernetes").iterdir()}
    applied = set(manifests["Kustomization "]["resources"])
    assert files - applied == {"kustomization.yaml", "secret.yaml", "migrate.yaml", "servicemonitor.yaml"}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for name in ("Service petstore", "Service petstore-admin"):
        assert labels == manifests[name]["spec"]["selector"]
    for name in ("Deployment petstore", "PodDisruptionBudget petstore"):
        assert {"matchLabels": labels} == manifests[name]["spec"]["selector"]
    [policy] = manifests["NetworkPolicy petstore"]["spec"]["podSelector"]["matchExpressions"]
    each_pod = [each["spec"]["template"]["metadata"]["labels"] for each in (deployment, job)]
    assert {"key": "app.kubernetes.io/name", "operator": "In"} == {name: policy[name] for name in ("key", "operator")}
    assert policy["values"] == [each[policy["key"]] for each in each_pod]
    monitored = manifests["ServiceMonitor petstore"]["spec"]
    service = manifests["Service petstore-admin"]["metadata"]["labels"]
    assert monitored["selector"]["matchLabels"].items() <= service.items()
    assert "petstore" == service[monitored["jobLabel"]]  # the job of the alerts


@pytest.mark.parametrize("webhooks", [False, True])
def test_the_settings_of_the_pods_are_valid(tmp_path: Path, webhooks: bool) -> None:
    manifests = {each["kind"]: each for each in kubernetes_manifests(webhooks=webhooks)}
    urls = manifests["Secret"]["stringData"]
    if webhooks:
        urls["webhook-secret"] = urls["webhook-secret"].replace("SECRET", 32 * "5ec4e7")
    environ = dict(manifests["ConfigMap"]["data"])
    for name, path in environ.items():
        if name.endswith("_FILE"):
            (tmp_path / Path(path).name).write_text(urls[Path(path).name])
            environ[name] = str(tmp_path / Path(path).name)
    settings = read_settings({**image_environment(), **environ})
    assert (urls["database-url"], urls["redis-url"]) == (settings.database_url, settings.redis_url)
    assert urls.get("webhook-secret") == settings.webhook_secret


def test_without_the_lines_that_the_settings_of_the_pods_name_the_store_is_the_sqlite_file_of_the_image() -> None:
    text = (DEPLOY / "kubernetes/settings.yaml").read_text()
    assert "On SQLite, remove these three lines.\n" in text
    before, _, after = text.partition("these three lines.\n")
    environ = parse_yaml(before + "".join(after.splitlines(keepends=True)[3:]))["data"]
    settings = read_settings({**image_environment(), **environ})
    assert ("sqlite:////var/lib/petstore/orders.db", None) == (settings.database_url, settings.redis_url)


def test_the_network_policy_has_the_ports_of_sentinels_and_traces_as_comments() -> None:
    text = (DEPLOY / "kubernetes/network.yaml").read_text()
    shown = re.sub(r"^( +)# (- {protocol: TCP, port: \d+})", r"\1\2", text, flags=re.MULTILINE)
    ports = [[each["port"] for each in parse_yaml(form)["spec"]["egress"][0]["ports"]] for form in (text, shown)]
    assert [[53, 53, 5432, 6379], [53, 53, 5432, 6379, 26379, 4318]] == ports


def test_webhooks_in_kubernetes_and_under_systemd_reach_public_addresses_and_no_private_network() -> None:
    def networks(*texts: str) -> set[Network]:
        return set(map(ip_network, texts))

    before, after = (manifests_by_name(webhooks=each)["NetworkPolicy petstore"]["spec"] for each in (False, True))
    *others, webhooks = after["egress"]
    assert before == {**after, "egress": others}
    assert [{"protocol": "TCP"}] == webhooks["ports"]
    blocks = [each["ipBlock"] for each in webhooks["to"]]
    assert ["0.0.0.0/0", "::/0"] == [block["cidr"] for block in blocks]
    kubernetes = networks(*(text for block in blocks for text in block["except"]))
    drop_in = (DEPLOY / "README.md").read_text().partition("IPAddressDeny=\nIPAddressDeny=")[2]
    assert kubernetes == networks(*drop_in.partition("\n")[0].split())
    for network in kubernetes:
        host = f"[{network[1]}]" if network.version == 6 else str(network[1])
        with pytest.raises(AddressRefused, match="not public"):
            Addresses().destination(f"https://{host}/")


def changed_once(contract: str) -> Iterator[str]:
    """The paths of the operations that nginx, by their method, would send again after they were sent."""
    for path, operations in read_yaml(ROOT / f"server/src/petstore_server/api/{contract}.yaml")["paths"].items():
        if {"put", "delete"} & operations.keys():
            yield path


def test_the_readme_lists_every_file() -> None:
    text = (DEPLOY / "README.md").read_text()
    named = {DEPLOY / target for target in re.findall(r"\]\(([^)#]+)\)", text) if not target.startswith("../")}
    assert set(FILES) - {DEPLOY / "README.md"} == named


def test_nginx_sends_no_change_twice_and_keeps_the_request_id() -> None:
    text = (DEPLOY / "nginx/petstore.conf").read_text()
    (once,) = re.findall(r"location ~ (\S+) {\n\s+proxy_method +\$petstore_change_method;", text)
    paths = {path for name in CONTRACTS.values() for path in changed_once(name)}
    assert {"/store/orders/{orderId}", "/webhooks/{webhookId}"} == paths
    for version, path in product(CONTRACTS, paths):
        assert re.search(once, f"/{version}{path}")
        assert not re.search(once, f"/{version}/store/orders")
    assert {"error timeout;", "off;"} == set(re.findall(r"proxy_next_upstream +(.*)", text))
    assert not re.search(r"proxy_(set|hide)_header\s+X-Request-Id", text, re.IGNORECASE)
