"""The section for AGENTS.md, which a program reads that cannot ask."""

import re
import shlex

import raysm
from raysm.cli.arguments import build_parser, parse
from raysm.features.agents.command import section


def test_each_command_of_the_section_is_one_that_raysm_takes():
    shown = re.findall(r"(?m)^    (raysm .*)$", section())
    assert len(shown) > 5
    for line in shown:
        assert parse(shlex.split(line)[1:]).command == line.split()[1]


def test_each_installed_command_is_listed_with_what_it_does():
    listed = dict(re.findall(r"- `raysm (\w+)`: (.+)", section()))
    assert set(listed) == set(build_parser().commands)
    assert listed["scale"].startswith("run the same job with several numbers of instances")


def test_each_option_that_the_text_names_is_one_of_raysm_run():
    options = {
        option for each in build_parser().commands["run"]._actions for option in each.option_strings
    }
    named = set(re.findall(r"`(--[\w-]+)", section()))
    assert len(named) > 5
    assert named <= options


def test_the_python_of_the_section_is_taken_as_it_stands(tmp_path, monkeypatch, fake):
    (code,) = re.findall(r"```python\n(.*?)```", section(), re.DOTALL)
    (tmp_path / "script.py").write_text("pass")
    monkeypatch.chdir(tmp_path)
    exec(code.replace("raysm.Local()", "fake"), {"fake": fake})
    (plan,) = fake.submitted
    assert plan.request["ResourceConfig"]["InstanceCount"] == 2


def test_the_section_names_the_version_that_it_is_about():
    assert f"raysm {raysm.__version__}" in section()
