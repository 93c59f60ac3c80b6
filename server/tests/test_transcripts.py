"""What operators see of commands: each section of the transcripts, command after command."""

import pytest

from testing import needs
from testing.transcripts import TRANSCRIPTS, Section, sections

CASES = [
    pytest.param(each, id=f"{path.stem}: {each.name}", marks=[pytest.mark.system] if each.needs else [])
    for path in TRANSCRIPTS
    for each in sections(path)
]


@pytest.mark.parametrize("section", CASES)
def test_the_commands_of_a_transcript_print_what_it_has(section: Section) -> None:
    for program in section.needs:
        needs.program(program, {"bzcat": "bzip2", "xzcat": "xz-utils"}.get(program))
    assert section.text == section.replayed()
