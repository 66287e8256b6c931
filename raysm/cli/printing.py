"""How an answer is printed: a value flows in, its JSON or lines for people flow out."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.text import Text

__all__ = ["print_answer"]


class Answer(Protocol):
    """What a command answers with."""

    def as_dict(self) -> Mapping[str, Any]:
        """Return it as JSON has it."""
        ...


A = TypeVar("A", bound=Answer)


def print_answer(answer: A, lines: Callable[[A], Iterable[str]], console: Console, *, as_json: bool) -> None:
    """Print an answer as JSON, or as the lines that a view makes of it."""
    if as_json:
        # Not by the console: it would wrap and colour what another program reads.
        print(json.dumps(answer.as_dict(), indent=1))
        return
    for line in lines(answer):
        # Text, and not markup: names of rows and reasons of the service may hold square brackets.
        console.print(Text(line), soft_wrap=True)
