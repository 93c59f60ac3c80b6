"""Generate, compile, call, and print a table of languages and cases; the exit status is 1 if anything differs."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from generated_clients.calls import CASES, KNOWN, CallsFailed, call
from generated_clients.languages import TOOLS, Tool, generator_archive
from petstore_server.api.contracts import CONTRACTS, contract_yaml
from petstore_server.settings import read_settings
from testing.documents import ROOT, SOURCE

BUILD = ROOT / "build" / "generated-clients"
PAGE = SOURCE / "api" / "guide" / "generated.md"
NOT_TRIED = (
    "The generators csharp with the library generichost, kotlin, rust and swift: no compiler or packages for what they "
    "generate come from PyPI, npm or Debian 12."
)
LIMIT = 300  # seconds for one command

Results = Mapping[str, Mapping[str, str]]
"""Of each tool, what became of each case: `ok`, `known: …`, or what is wrong."""


def main() -> int:
    """Carry out the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="make test-clients")
    parser.add_argument("--only", metavar="NAME,...", default=",".join(TOOLS), help=f"of {', '.join(TOOLS)}")
    chosen = {name: TOOLS[name] for name in parser.parse_args().only.split(",")}
    absent = {name: packages for name, tool in chosen.items() if (packages := tool.missing())}
    tools = {name: tool for name, tool in chosen.items() if name not in absent}
    results = _try_all(tools)
    print(table := _table(results))
    print(f"\n{NOT_TRIED}")
    failed = [
        f"{name}: {case}: {result}"
        for name, found in results.items()
        for case, result in found.items()
        if result != "ok" and not result.startswith("known: ")
    ]
    for name, packages in absent.items():
        failed.append(f"{name} was not tried: apt-get install {' '.join(packages)}")
    if tools == TOOLS and table not in PAGE.read_text("utf-8"):
        failed.append(f"{PAGE.name} has another table")
    print(*failed, f"{len(tools) * len(CASES)} cases in {len(tools)} clients, {len(failed)} failed", sep="\n")
    return 1 if failed else 0


def _try_all(tools: Mapping[str, Tool]) -> Results:
    shutil.rmtree(BUILD / "clients", ignore_errors=True)
    folders = {name: BUILD / "clients" / name for name in tools}
    for folder in folders.values():
        folder.mkdir(parents=True)
    _generate(tools, folders)
    results = {}
    for name, tool in tools.items():
        versions = [_output(command, os.environ).splitlines()[0] for command in tool.versions]
        print(f"{tool.title}: {', '.join(versions)}", flush=True)
        results[name] = _try(name, tool, folders[name])
    return results


def _generate(tools: Mapping[str, Tool], folders: Mapping[str, Path]) -> None:
    """Generate all clients; openapi-generator makes those of all its languages in one process."""
    configurations = []
    for version in CONTRACTS:
        contract = BUILD / "clients" / f"{version}.yaml"
        contract.write_bytes(contract_yaml(read_settings({}), version))
        for name, tool in tools.items():
            if tool.generate is not None:
                _output(tool.generate(folders[name], version), os.environ)
                continue
            file = folders[name] / f"{version}.json"
            file.write_text(json.dumps(_configuration(tool, version, contract, folders[name] / version)))
            configurations.append(str(file))
    if configurations:
        run = ["java", "-jar", generator_archive()]
        print(f"openapi-generator {_output([*run, 'version'], os.environ).strip()}", flush=True)
        _output([*run, "batch", "--fail-fast", "--threads", "2", *configurations], os.environ)


def _configuration(tool: Tool, version: str, contract: Path, output: Path) -> Mapping[str, object]:
    """The file of settings for openapi-generator."""
    settings = json.dumps({name: value for name, value in tool.settings.items() if name != "library"})
    properties = json.loads(settings.replace("${VERSION}", version).replace("${NAME}", version.upper()))
    library = {"library": tool.settings["library"]} if "library" in tool.settings else {}
    return {
        "generatorName": tool.generator,
        "inputSpec": str(contract),
        "outputDir": str(output),
        "additionalProperties": properties,
        "typeMappings": tool.types,
        **library,
        "gitHost": "example.com",  # with the next two: the name of the Go module
        "gitUserId": "petstore",
        "gitRepoId": version,
    }


def _try(name: str, tool: Tool, folder: Path) -> Mapping[str, str]:
    """What became of each case: `ok`, `known: …`, or what is wrong."""
    environ = {**os.environ, **tool.environment(folder)}
    try:
        for command in tool.build(folder):
            _output(command, environ, folder)
        return call(name, lambda more: _output(tool.run(folder), {**environ, **more}, folder))
    except CallsFailed as error:
        return dict.fromkeys(CASES, "did not run") | {CASES[0]: str(error)}


def _output(command: list[str], environ: Mapping[str, str], folder: Path | None = None) -> str:
    """What a command prints. Raises CallsFailed."""
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise CallsFailed(f"{' '.join(command)[:160]} ended with {done.returncode}:\n{last}")
    return done.stdout


def _table(results: Results) -> str:
    """A table in Markdown: a row for each case, a column for each tool."""
    lines = [f"| Case | {' | '.join(TOOLS[name].title for name in results)} |", "|---" * (len(results) + 1) + "|"]
    for case in CASES:
        marks = ["yes" if found[case] == "ok" else KNOWN.get((name, case), "no") for name, found in results.items()]
        lines.append(f"| {case} | {' | '.join(marks)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
