"""The project's language: standard terms, and none of the words that were replaced by them."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = (
    "server/src",
    "server/tests",
    "client",
    "tests",
    "testing",
    "bench",
    "torture",
    "generated_clients",
    "docs",
    "deploy",
)
KINDS = {".py", ".md", ".sql", ".lua", ".yaml", ".yml", ".html", ".conf", ".service", ".env"}

AVOIDED = {
    r"(?:no|some)body\b": "no client, one client",
    r"alone\b": "only",
    r"beside\b": "next to",
    r"moments?\b": "time, timestamp",
    r"(?:is|are)(?: never)? told\b|told of\b|tells? of\b": "is reported, shows",
    r"lets? go of\b": "release, close",
    r"judge[sd]?\b": "evaluate",
    r"(?:is|are) no (?!longer|more|[a-z]+er\b)": "is not a",
    r"ledgers?\b": "usage store",
    r"happenings?\b": "faults",
    r"flavours?\b": "variants",
    r"figures\b": "measurements, results, values",
    r"findings\b": "check results",
    r"upkeep\b": "background tasks, maintenance",
    r"chatter\b": "log to stderr",
    r"(?:either|any)_store\b": "each_backend",
}
"""Words that readers have to decode, as regular expressions, and what to write."""

EXCEPTIONS = re.compile(r"\b(?:there|where|here) (?:is|are) no\b|\bHappening = Fault\b", re.IGNORECASE)
"""Idioms, and a name that is kept for programs that use it."""


TEST_NAME = re.compile(r"\bdef test_\w+")


def texts() -> Iterator[tuple[Path, str]]:
    """Every file of the project that people read, but for this one.

    The name of a test is a sentence, so its words are separated by spaces here.
    """
    files = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.suffix in KINDS]
    for path in [*ROOT.glob("*.md"), *files]:
        if path != Path(__file__):
            text = TEST_NAME.sub(lambda name: name[0].replace("_", " "), path.read_text())
            yield path.relative_to(ROOT), EXCEPTIONS.sub("", text)


def test_plain_words_are_used() -> None:
    avoided = [(re.compile(rf"\b(?:{words})", re.IGNORECASE), better) for words, better in AVOIDED.items()]
    some = re.compile(rf"\b(?:{'|'.join(AVOIDED)})")  # in lower case, which is found in half the time
    found = [
        f"{path}:{number}: {line.strip()} (write: {better})"
        for path, text in texts()
        if some.search(text.lower())
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, better in avoided
        if pattern.search(line)
    ]
    assert [] == found
