"""``raysm config`` says what applies, and where each value comes from."""

import io
import json

import pytest
from rich.console import Console

from raysm.cli import config
from raysm.cli.arguments import parse
from raysm.cli.choosing import read_settings
from raysm.cli.config import effective


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    (tmp_path / "raysm.toml").write_text("[cluster]\ncount = 2\n[tags]\nteam = 'a'\n[profile.p]\nproject = 'x'\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(*argv):
    out = io.StringIO()
    config.run(parse(["config", *argv]), Console(file=out, width=40))
    return out.getvalue().splitlines()


def test_each_line_has_option_value_and_origin(folder):
    lines = shown("--max-runtime", "60", "--config-profile", "p")
    assert lines[0] == f"# project file: {folder / 'raysm.toml'}"
    fields = {line.partition("  #")[0].strip(): line.rpartition("# ")[2] for line in lines[1:]}
    assert fields["cluster.count = 2"] == "raysm.toml:2"
    assert fields['tags.team = "a"'] == "raysm.toml:4"
    assert fields['project = "x"'] == "raysm.toml:6"
    assert fields["limits.max_runtime_s = 60"] == "--max-runtime"
    assert fields["limits.spot = false"] == "default"
    assert fields['on = "local"'] == "default"


def test_what_is_shown_is_a_project_file_that_says_the_same(folder):
    metric = 'metrics=[{name = "loss", regex = "loss=(.*)"}]'
    lines = shown("--max-runtime", "60", "--set", metric, "--set", 'environment.A="b\\u007fé\\n"')
    assert "# local.image has no value" in [line.partition("  #")[0].strip() for line in lines]
    before = {key: value for key, (value, _) in effective(read_settings(parse(["config"])))}
    (folder / "raysm.toml").write_text("\n".join(lines))
    after = {key: value for key, (value, _) in effective(read_settings(parse(["config"])))}
    chosen = {"limits.max_runtime_s": 60, "metrics": [{"name": "loss", "regex": "loss=(.*)"}]}
    assert after == before | chosen | {"environment.A": "b\x7fé\n"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (1.5, "1.5"),
        ('a"b', '"a\\"b"'),
        ([1, "b"], '[1, "b"]'),
        ({"a b": {"c": [2]}, "d": None}, '{ "a b" = { "c" = [2] } }'),
    ],
)
def test_values_are_written_as_toml_writes_them(value, text):
    assert config.toml(value) == text


def test_programs_read_the_same_as_json(folder, capsys):
    shown("--json", "--on", "aws")
    answer = json.loads(capsys.readouterr().out)
    assert answer["file"] == str(folder / "raysm.toml")
    assert answer["profile"] is None
    assert answer["options"]["cluster.count"] == {"value": 2, "from": "raysm.toml:2"}
    assert answer["options"]["on"] == {"value": "aws", "from": "--on"}
    assert "aws.region" in answer["options"]
    assert "local.image" not in answer["options"]


def test_without_a_project_file_all_is_as_built_in(folder):
    (folder / "raysm.toml").unlink()
    assert shown()[0] == "# project file: none (raysm.toml, here or above)"
    origins = {origin for _, (_, origin) in effective(read_settings(parse(["config"])))}
    assert origins == {"default"}


def test_a_request_is_looked_at_with_its_workload(folder):
    (folder / "r.toml").write_text('[workload]\nkind = "script"\nscript = "a.py"\n')
    assert f'workload.script = "{folder / "a.py"}"' in "\n".join(shown("--request", "r.toml"))


def test_a_port_is_shown_where_somebody_chose_it():
    assert not any(line.startswith("ports") for line in shown())
    assert any(line.startswith("ports.gcs = 7000") for line in shown("--set", "ports.gcs=7000"))
