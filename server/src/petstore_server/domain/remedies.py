"""Remedies: what to do about an error, which the command line and the console phrase in their own ways."""

from collections.abc import Callable
from typing import NamedTuple


class Choice(NamedTuple):
    """A choice that an import offers, by the name of its option without hyphens, and the value to give."""

    name: str
    value: str = ""

    def filled(self, text: str) -> str:
        """The text of a face with the value for {}, or its parts before and after the equals sign for {1} and {2}."""
        before, _, after = self.value.rpartition("=")
        return text.format(self.value, before, after).rstrip()


class Remedy(NamedTuple):
    """What to do about an error: a clause with a {} for each of the choices, which each face phrases in its own way."""

    text: str
    choices: tuple[Choice, ...] = ()

    def phrased(self, phrase: Callable[[Choice], str]) -> str:
        return self.text.format(*map(phrase, self.choices))


def choose(name: str, value: str = "", then: str = "") -> Remedy:
    """The remedy of one choice; `then` says what it does."""
    return Remedy(f"{{}} {then}".rstrip(), (Choice(name, value),))


def with_remedy(message: str, remedy: Remedy | None, phrase: Callable[[Choice], str]) -> str:
    """The message of an error with its remedy in the words of one face."""
    if remedy is None:
        return message
    return f"{message.removesuffix('.')}{'' if message.endswith(':') else ';'} {remedy.phrased(phrase)}."
