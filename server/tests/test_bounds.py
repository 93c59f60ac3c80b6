"""What a process keeps in memory: every cache, queue and table is in the list of bounds, and nothing else is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "server" / "src" / "petstore_server"
LIST = "What is kept in memory"
SERVING = ("api", "server", "limits", "telemetry", "engines", "domain", "console", "batching.py", "fair_queue.py")
"""The parts that serve requests. Commands end after each run."""

KEEPS = re.compile(
    r"lru_cache\(|^@cache$|deque\(|Queue\(|"
    r"^\w+: (?:dict|set|list|defaultdict)\[.*\] = (?:defaultdict\(|\{\}|set\(\)|\[\])|"
    r"self\.\w+: (?:dict|set|list|defaultdict|deque|OrderedDict)\[",
    re.MULTILINE,
)
FRONT = re.compile(r"next\(iter\((?:self\.)?(\w+)|islice\(self\.(\w+)")
"""Looks at what is at the front. In a dict that skips every entry that was removed from there, one by one."""

NOT_SERVING = {"engines/copy.py"}


def listed() -> set[str]:
    """The files that the list of bounds names."""
    section = (ROOT / "docs" / "reference.md").read_text().partition(f"## {LIST}")[2].partition("\n## ")[0]
    return set(re.findall(r"`([\w/]+\.py)`", section))


def keeping() -> set[str]:
    """The files with something that lasts longer than a call."""
    files = [path for name in SERVING for path in ([SOURCE / name] if "." in name else (SOURCE / name).rglob("*.py"))]
    found = {str(path.relative_to(SOURCE)) for path in files if KEEPS.search(path.read_text())}
    return found - NOT_SERVING


def test_the_list_of_bounds_names_every_file_that_keeps_something() -> None:
    assert set() == keeping() - listed()


def test_what_is_taken_from_the_front_of_a_table_is_found_in_constant_time() -> None:
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")}
    taken = {(file, name) for file, text in texts.items() for names in FRONT.findall(text) for name in names if name}
    ordered = {(file, name) for file, text in texts.items() for name in re.findall(r"(\w+): OrderedDict\[", text)}
    assert taken
    assert set() == taken - ordered
