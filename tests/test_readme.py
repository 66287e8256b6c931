"""The README names only what there is."""

import re
import shlex
from pathlib import Path

import pytest

import raysm
from raysm.cli.arguments import parse

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def commands():
    lines = [line.strip() for line in README.splitlines() if line.startswith("    ")]
    found = [part.strip() for line in lines for part in line.split("&&")]
    return [text for text in found if text.startswith("raysm ") and not re.search(r"[|\[]", text)]


@pytest.mark.parametrize("command", commands())
def test_every_command_is_one_that_raysm_takes(command):
    assert parse(shlex.split(command)[1:]).command == command.split()[1]


def test_there_are_commands_to_look_at():
    assert len(commands()) >= 2


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_every_link_leads_somewhere(target):
    assert (ROOT / target).exists()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\braysm\.([A-Za-z_]+)", README)) - {"io", "testing", "sdk"}))
def test_every_name_of_the_api_is_there(name):
    assert name in ("client", "bootstrap") or hasattr(raysm, name)


@pytest.mark.parametrize("path", re.findall(r"\b(?:examples|tests)/[\w./-]+\w", README))
def test_every_file_that_it_names_is_there(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_its_python_is_python(code):
    compile(code, "README.md", "exec")
