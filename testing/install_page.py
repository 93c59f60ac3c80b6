"""The steps of docs/install.md."""

import re
from typing import NamedTuple

from testing.documents import ROOT

_STEP = re.compile(r"<!-- install(?P<packages>: packages)? -->\n```sh\n(?P<script>.*?)```\n", re.DOTALL)


class InstallPage(NamedTuple):
    """Scripts of sh: what installs Debian's packages, and the steps after it, in order."""

    packages: str
    steps: list[str]


def install_page() -> InstallPage:
    """Read the page; every block of its commands must be a step."""
    text = (ROOT / "docs" / "install.md").read_text()
    found = list(_STEP.finditer(text))
    assert len(found) == len(re.findall(r"^```sh$", text, re.MULTILINE))
    assert found[0]["packages"]
    return InstallPage(found[0]["script"], [step["script"] for step in found[1:]])
