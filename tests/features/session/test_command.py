"""The commands of sessions, as far as they need no cluster."""

import io
import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.cli.config import read_settings
from raysm.core.client.service import Service
from raysm.core.protocol.events import State
from raysm.core.protocol.names import TASK_TAG, WORKLOAD_TAG
from raysm.core.request import Local
from raysm.errors import InvalidRequest
from raysm.features.session.client.start import SessionLimits
from raysm.features.session.command import Prompt, choose_options, run
from raysm.features.session.protocol import SERVING
from tests.support.sagemaker import fake_aws
from tests.support.sessions import state


class Listing(Service):
    """A service as far as it tells which sessions there are."""

    def __init__(self, *names):
        super().__init__(Local())
        self.names = names

    def summaries(self, api, *, contains=None, limit):
        for name in self.names:
            if contains is None or contains in name:
                yield {
                    "TrainingJobName": name,
                    "TrainingJobArn": name,
                    "TrainingJobStatus": "InProgress",
                    "CreationTime": datetime(2026, 11, 1, tzinfo=UTC),
                }

    def tags(self, arn):
        return {WORKLOAD_TAG: "session", TASK_TAG: arn.partition("-")[0]}


class Remote:
    """A session, as far as a prompt has to know it."""

    def __init__(self):
        self.sources = []

    def exec(self, source, *, args=(), filename=""):
        self.sources.append(source)
        if "boom" in source:
            error = KeyError("lr")
            error.add_note("in the session digits on algo-1:\nTraceback …")
            raise error
        if "slow" in source:
            raise KeyboardInterrupt
        return SimpleNamespace(result="shown" if source == "x" else None)


def typed(*lines):
    """Return the sources that a session gets of these lines."""
    pending, remote = list(lines), Remote()

    def read(prompt):
        if not pending:
            raise EOFError
        line = pending.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line

    Prompt(remote, read).interact(banner="", exitmsg="")
    return remote.sources


def printed(*argv, service):
    out = io.StringIO()
    assert run(parse(["session", *argv]), Console(file=out, width=200), service) == 0
    return out.getvalue()


def test_sessions_are_listed_by_their_names(capsys):
    service = Listing("digits-20261101-120000-abcd1234")
    assert printed("list", service=service).split()[3:5] == [
        "digits",
        "digits-20261101-120000-abcd1234",
    ]
    printed("list", "--json", service=service)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["created"]) == ("digits", "2026-11-01T00:00:00+00:00")
    assert printed("list", service=Listing()) == "no sessions\n"


class Started:
    """A session that starts at once."""

    def __init__(self, **options):
        self.name, self.state, self.limits = "digits", state(), SessionLimits()
        self.job = SimpleNamespace(name="digits-1", service=SimpleNamespace(target=Local()))

    def start(self, show):
        show(State(name="dashboard", host="algo-1", address="http://10.0.0.1:8265"))
        show(State(name=SERVING, host="algo-1", address="http://127.0.0.1:4567"))

    def detach(self):
        self.is_detached = True


def test_the_start_prints_commands_and_no_address_that_asks_for_a_token(monkeypatch):
    monkeypatch.setattr("raysm.features.session.command.Session", Started)
    out = printed("start", "--name", "digits", service=None)
    assert "http" not in out
    assert "raysm dashboard digits-1" in out
    assert "raysm session keep digits" in out


def test_a_dry_run_of_a_start_prints_the_call_and_its_cost_and_sends_nothing(capsys):
    options = (
        "--on aws --instance-type ml.m5.large --max-runtime 1h --name digits --idle 5m".split()
    )
    with fake_aws() as remote:
        printed("start", "--dry-run", *options, service=remote.service)
    out, err = capsys.readouterr()
    call = json.loads(out)["request"]
    assert call["TrainingJobName"].startswith("digits-")
    assert call["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert "would cost unknown, up to 1.0 instance-hours" in err
    assert remote.operations() <= {"sts:GetCallerIdentity"}


def test_a_file_that_is_not_there_is_said_before_any_session_is_looked_for(tmp_path):
    with pytest.raises(InvalidRequest, match=r"none\.py"):
        run(parse(["exec", "digits", str(tmp_path / "none.py")]), Console(), Listing())


def test_a_session_has_the_packages_of_a_requirements_file_and_the_wheels_that_travel(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").write_text("tqdm>=4\nsix\n")
    asked = parse(
        [
            "session",
            "start",
            "--requirement",
            "requirements.txt",
            "--wheel",
            "own-1-py3-none-any.whl",
        ]
    )
    assert choose_options(asked, read_settings(asked))["requirements"] == [
        "tqdm>=4",
        "six",
        "own==1",
    ]


def test_a_prompt_sends_each_statement_once_it_is_whole():
    lines = ("x = 1", "for i in range(2):", "    x += i", "", "x")
    assert typed(*lines) == ["x = 1", "for i in range(2):\n    x += i\n", "x"]


def test_a_prompt_shows_values_and_remote_tracebacks(capsys):
    typed("x", "boom", "x")
    out, err = capsys.readouterr()
    assert out == "'shown'\n" * 2
    assert err.strip() == "in the session digits on algo-1:\nTraceback …"


def test_ctrl_c_drops_what_was_typed_and_what_runs_and_the_prompt_goes_on():
    assert typed("def f(", KeyboardInterrupt(), "slow", "x") == ["slow", "x"]
