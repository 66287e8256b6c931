"""The command line of a script or a command, and its start under a parent with which it ends."""

import subprocess
import sys

import pytest

from raysm.core.protocol import script_main
from raysm.instance import die_with_parent
from raysm.instance.work.program import command_line

PYTHON = [sys.executable, script_main.__file__]


@pytest.mark.parametrize(
    ("name", "text", "before"),
    [
        ("train.py", "print(1)", PYTHON),
        ("train", "print(1)", PYTHON),
        ("train", "#!/usr/bin/env python3\nprint(1)", PYTHON),
        ("download.sh", "echo 1", ["bash"]),
        ("download", "#!/usr/bin/env -S perl -w\nprint 1;", ["/usr/bin/env", "-S", "perl", "-w"]),
    ],
)
def test_the_name_or_the_first_line_of_a_script_says_what_runs_it(name, text, before, tmp_path):
    (tmp_path / name).write_text(text)
    words = command_line(name, ["--lr", "1"], source=tmp_path, is_command=False)
    assert words == [*before, str(tmp_path / name), "--lr", "1"]


def test_a_command_is_started_as_it_is(tmp_path):
    assert command_line("make", ["data"], source=tmp_path, is_command=True) == ["make", "data"]


def test_a_program_is_found_by_the_path():
    ended = subprocess.run(die_with_parent.wrap(["sh", "-c", "exit 3"]), check=False)
    assert ended.returncode == 3


def test_a_program_that_does_not_exist_is_named():
    ended = subprocess.run(
        die_with_parent.wrap(["no-such-program"]), stderr=subprocess.PIPE, text=True, check=False
    )
    assert ended.returncode == 127
    assert ended.stderr.startswith("no-such-program: cannot be started")
