"""The generators and languages: how a client is generated, compiled and run, and what that needs of the system.

A tool has a folder, in which `v1` and `v2` are the generated clients, and its program is copied next to them.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
BIN = Path(sys.executable).parent
NODE_MODULES = BIN.parent / "npm" / "node_modules"

ANNOTATIONS = "/usr/share/java/geronimo-annotation-1.3-spec.jar"
NEWTONSOFT = "/usr/lib/cli/Newtonsoft.Json-5.0/Newtonsoft.Json.dll"
_GEMS = "/usr/share/rubygems-integration/all/gems"
_MONO = ("System.Net.Http", "System.ComponentModel.DataAnnotations", "System.Runtime.Serialization", "System.Web")
_JAVA = {"java": "default-jdk-headless"}
_NAMING_STRATEGY = re.compile(
    r"new DefaultContractResolver\s*\{\s*NamingStrategy = new CamelCaseNamingStrategy\s*\{[^}]*\}\s*\}"
)

Command = list[str]


class Tool(NamedTuple):
    """One generator for one language.

    `generator`, `settings` and `types` are for openapi-generator (`${VERSION}` and `${NAME}` stand for v1 and V1); for
    another one, `generate` is the command that makes the client of a version. `build` prepares a folder and returns the
    commands that compile in it; `run` is the command that makes the calls. `needs` are programs and files of the
    system, with the Debian packages that have them. `versions` are commands that print the versions of what is used.
    """

    title: str
    run: Callable[[Path], Command]
    versions: list[Command]
    needs: Mapping[str, str] = {}
    generator: str = ""
    settings: Mapping[str, Any] = {}
    types: Mapping[str, str] = {}
    generate: Callable[[Path, str], Command] | None = None
    build: Callable[[Path], list[Command]] = lambda _: []
    environment: Callable[[Path], Mapping[str, str]] = lambda _: {}

    def missing(self) -> list[str]:
        """The Debian packages that are not here."""
        return sorted({package for name, package in self.needs.items() if not _is_here(name)})


def _is_here(name: str) -> bool:
    """Whether there is a program with this name, or a file with this path, in which `*` may stand for anything."""
    return any(Path("/").glob(name.removeprefix("/"))) if name.startswith("/") else shutil.which(name) is not None


def generator_archive() -> str:
    """The path of openapi-generator's Java archive."""
    found = find_spec("openapi_generator_cli")
    if found is None or found.origin is None:
        raise FileNotFoundError("openapi-generator-cli is not installed; run make test-clients.")
    return str(Path(found.origin).with_name("openapi-generator.jar"))


def _program(folder: Path, name: str) -> str:
    """The program with the calls, copied to where the generated clients are."""
    return str(shutil.copy(PROGRAMS / name, folder / name))


def _python(name: str) -> Callable[[Path], Command]:
    options = ["-W", "error", "-W", "ignore:GET:DeprecationWarning"]  # GET /pets/{petId} is deprecated
    return lambda folder: [sys.executable, *options, _program(folder, name)]


def _openapi_python_client(folder: Path, version: str) -> Command:
    (folder / "options.yaml").write_text("post_hooks: []\n")
    source = ["--path", str(folder.parent / f"{version}.yaml"), "--config", str(folder / "options.yaml")]
    target = ["--meta", "none", "--overwrite", "--output-path", str(folder / f"petstore_{version}")]
    return [str(BIN / "openapi-python-client"), "generate", *source, *target]


def _openapi_typescript(folder: Path, version: str) -> Command:
    program = NODE_MODULES / "openapi-typescript" / "bin" / "cli.js"
    return ["node", str(program), str(folder.parent / f"{version}.yaml"), "-o", str(folder / f"{version}.ts")]


def _node_version(package: str) -> Command:
    return ["node", "-p", f"'{package} ' + require('{NODE_MODULES}/{package}/package.json').version"]


def _build_typescript(name: str) -> Callable[[Path], list[Command]]:
    def build(folder: Path) -> list[Command]:
        for program in (f"{name}.ts", "cases.ts"):
            _program(folder, program)
        project = (PROGRAMS / "tsconfig.json").read_text().replace("PROGRAM", f"{name}.ts")
        (folder / "tsconfig.json").write_text(project)
        (folder / "node_modules").symlink_to(NODE_MODULES)
        return [["node", str(NODE_MODULES / "typescript" / "bin" / "tsc"), "-p", str(folder)]]

    return build


def _build_go(folder: Path) -> list[Command]:
    calls = folder / "calls"
    calls.mkdir()
    shutil.copy(PROGRAMS / "calls.go", calls / "main.go")
    (calls / "go.mod").write_text("module example.com/petstore/calls\n\ngo 1.23\n")
    (folder / "go.work").write_text("go 1.23\n\nuse (\n\t./calls\n\t./v1\n\t./v2\n)\n")
    go = str(BIN / "go")
    return [[go, "vet", "./calls", "./v1", "./v2"], [go, "build", "-o", str(folder / "program"), "./calls"]]


def _go_environment(folder: Path) -> Mapping[str, str]:
    cache = str(folder.parent.parent / "go-cache")
    return {"GOFLAGS": "", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOCACHE": cache}


def _build_java(folder: Path) -> list[Command]:
    sources = [str(path) for version in ("v1", "v2") for path in (folder / version / "src" / "main").rglob("*.java")]
    path = f"{generator_archive()}:{ANNOTATIONS}"  # the archive has Jackson
    program = _program(folder, "Calls.java")
    return [["javac", "-nowarn", "-cp", path, "-d", str(folder / "classes"), program, *sources]]


def _build_csharp(folder: Path) -> list[Command]:
    """Debian's Newtonsoft.Json is 6.0.8, which has no naming strategies: an equal resolver stands in for one."""
    sources = [
        path for name in ("v1", "v2") for path in (folder / name / "src" / f"Petstore{name.upper()}").rglob("*.cs")
    ]
    for source in sources:
        text = source.read_text("utf-8")
        source.write_text(_NAMING_STRATEGY.sub("new CamelCasePropertyNamesContractResolver()", text), "utf-8")
    shutil.copy(NEWTONSOFT, folder)
    references = [f"-r:{name}" for name in (*_MONO, NEWTONSOFT)]
    programs = [_program(folder, name) for name in ("Calls.cs", "Polly.cs")]
    return [["mcs", "-langversion:latest", f"-out:{folder / 'calls.exe'}", *references, *programs, *map(str, sources)]]


TOOLS = {
    "python": Tool(
        "Python (openapi-generator)",
        _python("calls.py"),
        [[sys.executable, "--version"]],
        needs=_JAVA,
        generator="python",
        settings={"packageName": "petstore_${VERSION}"},
        environment=lambda folder: {"PYTHONPATH": f"{folder / 'v1'}{os.pathsep}{folder / 'v2'}"},
    ),
    "openapi-python-client": Tool(
        "Python (openapi-python-client)",
        _python("openapi_python.py"),
        [[str(BIN / "openapi-python-client"), "--version"]],
        generate=_openapi_python_client,
    ),
    "typescript": Tool(
        "TypeScript (typescript-fetch)",
        lambda folder: ["node", str(folder / "built" / "fetch.js")],
        [["node", "--version"], _node_version("typescript")],
        needs={"node": "nodejs", **_JAVA},
        generator="typescript-fetch",
        build=_build_typescript("fetch"),
    ),
    "openapi-fetch": Tool(
        "TypeScript (openapi-fetch)",
        lambda folder: ["node", str(folder / "built" / "openapi_fetch.js")],
        [_node_version("openapi-typescript"), _node_version("openapi-fetch")],
        needs={"node": "nodejs"},
        generate=_openapi_typescript,
        build=_build_typescript("openapi_fetch"),
    ),
    "go": Tool(
        "Go",
        lambda folder: [str(folder / "program")],
        [[str(BIN / "go"), "version"]],
        needs=_JAVA,
        generator="go",
        settings={"packageName": "petstore${VERSION}"},
        types={"integer": "int64"},
        build=_build_go,
        environment=_go_environment,
    ),
    "php": Tool(
        "PHP",
        lambda folder: ["php", "-d", "display_errors=stderr", _program(folder, "calls.php")],
        [["php", "--version"]],
        needs={
            "php": "php-cli",
            "/usr/lib/php/*/curl.so": "php-curl",
            "/usr/lib/php/*/mbstring.so": "php-mbstring",
            "/usr/share/php/GuzzleHttp/autoload.php": "php-guzzlehttp-guzzle",
            **_JAVA,
        },
        generator="php",
        settings={"invokerPackage": "Petstore\\${VERSION}"},
    ),
    "ruby": Tool(
        "Ruby",
        lambda folder: [
            "ruby",
            f"-I{folder / 'v1' / 'lib'}",
            f"-I{folder / 'v2' / 'lib'}",
            _program(folder, "calls.rb"),
        ],
        [["ruby", "--version"]],
        needs={
            "ruby": "ruby",
            f"{_GEMS}/typhoeus-*": "ruby-typhoeus",
            f"{_GEMS}/marcel-*": "ruby-marcel",
            **_JAVA,
        },
        generator="ruby",
        settings={"gemName": "petstore_${VERSION}", "moduleName": "Petstore${NAME}"},
    ),
    "java": Tool(
        "Java",
        lambda folder: ["java", "-cp", f"{folder / 'classes'}:{generator_archive()}:{ANNOTATIONS}", "Calls"],
        [["java", "--version"]],
        needs={"javac": "default-jdk-headless", ANNOTATIONS: "libgeronimo-annotation-1.3-spec-java", **_JAVA},
        generator="java",
        settings={
            "library": "native",
            "openApiNullable": False,
            "invokerPackage": "petstore.${VERSION}",
            "apiPackage": "petstore.${VERSION}.api",
            "modelPackage": "petstore.${VERSION}.model",
        },
        types={"integer": "Long"},
        build=_build_java,
    ),
    "csharp": Tool(
        "C# (httpclient)",
        lambda folder: ["mono", str(folder / "calls.exe")],
        [["mono", "--version"], ["mcs", "--version"]],
        needs={
            "mono": "mono-runtime",
            "mcs": "mono-mcs",
            NEWTONSOFT: "libnewtonsoft-json5.0-cil",
            **{f"/usr/lib/mono/4.5/{name}.dll": f"libmono-{name.replace('.', '-').lower()}4.0-cil" for name in _MONO},
            **_JAVA,
        },
        generator="csharp",
        settings={
            "library": "httpclient",
            "targetFramework": "net47",
            "packageName": "Petstore${NAME}",
            "conditionalSerialization": True,
        },
        types={"integer": "long"},
        build=_build_csharp,
    ),
}
