"""An answer is printed for programs or for people."""

import io
import json
from dataclasses import asdict, dataclass

from rich.console import Console

from raysm.cli.printing import print_answer


@dataclass
class Counted:
    """An answer with a text that a console would take for markup, and a long one that it would wrap."""

    name: str = "[red]row-1[/red]"
    reason: str = "x" * 200

    def as_dict(self):
        return asdict(self)


def lines(answer):
    return [answer.name, answer.reason]


def printed(**how):
    console = Console(file=io.StringIO(), width=40)
    print_answer(Counted(), lines, console, **how)
    return console.file.getvalue()


def test_people_read_lines_as_they_are():
    assert printed(as_json=False) == f"[red]row-1[/red]\n{'x' * 200}\n"


def test_programs_read_json_that_no_console_has_touched(capsys):
    assert printed(as_json=True) == ""
    assert json.loads(capsys.readouterr().out) == Counted().as_dict()
