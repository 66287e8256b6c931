"""Lines of words and options, as magics have them: text flows in, fields flow out. Pure, and with one clear sentence.

Not by argparse: it ends the process, or answers one wrong word with the usage of all.
"""

import difflib
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from raysm.errors import InvalidRequest

__all__ = ["Option", "identifier", "nearest", "read_options", "split"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option."""

    spellings: tuple[str, ...]
    """The first is its own; the others are what other tools call it."""
    field: str
    """The name of what it decides."""
    summary: str
    """For people, on one line."""
    value: str = ""
    """What its value is called; empty: it has none."""
    read: Callable[[str], Any] = str
    """Returns its value; raises ValueError with what it has to be."""

    def usage(self) -> str:
        """Return it as usages show it: ``[--push NAMES]``."""
        return f"[{self.spellings[0]}{f' {self.value}' if self.value else ''}]"


def split(line: str, where: str) -> list[str]:
    """Return the words of a line, as a shell has them.

    Raises:
        InvalidRequest: A quote is not closed.
    """
    try:
        # As a shell: names with blanks can be quoted, as people are used to.
        return shlex.split(line)
    except ValueError as error:
        raise InvalidRequest(f"{where}: {str(error).lower()} in {line.strip()!r}") from None


def read_options(words: Sequence[str], options: Sequence[Option], where: str) -> tuple[list[str], dict[str, Any]]:
    """Tell words from options.

    Args:
        words: In their order; ``--name=value`` is as good as ``--name value``.
        options: All that there are.
        where: Whose they are, for messages: ``%%raysm``.

    Returns:
        The words that are no options, and each option's value by its field; of one without a value, True.

    Raises:
        InvalidRequest: There is no such option, its value is missing or is none.
    """
    by_spelling = {spelling: option for option in options for spelling in option.spellings}
    plain: list[str] = []
    fields: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        # keep -5 is a wrong number, and no option called -5.
        if not word.startswith("-") or _is_number(word):
            plain.append(word)
            continue
        name, equals, text = word.partition("=")
        if name not in by_spelling:
            raise InvalidRequest(f"{where} has no option {name}{nearest(name, by_spelling)}")
        option = by_spelling[name]
        if option.value and not equals:
            if not rest:
                raise InvalidRequest(f"{where} {name} needs {option.value}: {option.summary}")
            text = rest.pop(0)
        elif equals and not option.value:
            raise InvalidRequest(f"{where} {name} takes no value, got {text!r}")
        fields[option.field] = _value(option, name, text, where) if option.value else True
    return plain, fields


def nearest(word: str, words: Iterable[str]) -> str:
    """Return what may have been meant, to stand behind a message."""
    every = list(words)
    # Looser than difflib's 0.6: options are short, and one wrong letter of four is already 0.75.
    near = difflib.get_close_matches(word, every, n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(every)}"


def identifier(text: str) -> str:
    """Return a name of a variable.

    Raises:
        ValueError: It can be none.
    """
    if not text.isidentifier():
        raise ValueError("the name of a variable")
    return text


def _value(option: Option, name: str, text: str, where: str) -> Any:
    try:
        return option.read(text)
    except ValueError as error:
        raise InvalidRequest(f"{where} {name} must be {error}, got {text!r}") from None


def _is_number(word: str) -> bool:
    return word[1:].replace(".", "", 1).isdigit()
