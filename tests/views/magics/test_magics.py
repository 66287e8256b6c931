"""The magics of one shell, with sessions that a test made."""

import contextlib
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.error import UsageError

from raysm.client.session.current import inside
from raysm.contract.events import State
from raysm.contract.session import SERVING
from raysm.errors import JobNotFound
from raysm.request import Cluster
from raysm.views.magics.magics import CELL, Magics, print_event
from tests.support.fake_sessions import FakeCall, FakeSession


class FakeOpens:
    """Sessions by name; what was started, with which options."""

    def __init__(self, *sessions):
        self.sessions = {session.name: session for session in sessions}
        self.started, self.attached = [], []

    def start(self, **options):
        self.started.append(options)
        return FakeSession(options.get("name", "unnamed"))

    def attach(self, name, on):
        self.attached.append((name, on))
        if name not in self.sessions:
            raise JobNotFound(f"there is no session {name!r}")
        return self.sessions[name]


@pytest.fixture
def digits():
    return FakeSession("digits")


@pytest.fixture
def shell():
    return types.SimpleNamespace(user_ns={}, execution_count=7)


@pytest.fixture
def magics(shell, digits):
    return Magics(shell, FakeOpens(digits))


def test_a_cell_runs_in_the_session_that_is_connected(magics, digits):
    digits.call = FakeCall(42)
    assert magics.raysm("connect digits") is digits
    assert magics.raysm("", "x = 1\n") == 42
    assert digits.cells == [("\nx = 1\n", "Cell In[7]", None)]


def test_a_session_is_started_as_the_line_says(shell):
    opens = FakeOpens()
    magics = Magics(shell, opens)
    assert magics.raysm("start digits --instances 2 --idle 10").name == "digits"
    magics.raysm("start --type ml.m5.large --instances 3")
    assert opens.started == [
        {"name": "digits", "cluster": Cluster(count=2), "idle_timeout_s": 600.0},
        {"cluster": Cluster("ml.m5.large", count=3)},
    ]


def test_a_project_file_says_where(shell, tmp_path):
    (tmp_path / "raysm.toml").write_text('[profile.small]\nproject = "digits"\n')
    opens = FakeOpens()
    with contextlib.chdir(tmp_path):
        Magics(shell, opens).raysm("start --profile small")
    assert opens.started[0]["project"] == "digits"


def test_what_a_line_says_of_instances_leaves_the_profiles_others(shell, tmp_path):
    (tmp_path / "raysm.toml").write_text(
        '[profile.gpu.cluster]\ninstance_type = "ml.g5.xlarge"\nvolume_gb = 200\nkeep_alive_s = 600\n'
    )
    opens = FakeOpens()
    magics = Magics(shell, opens)
    with contextlib.chdir(tmp_path):
        magics.raysm("start --profile gpu --instances 4")
        magics.raysm("start --profile gpu --type ml.g5.2xlarge")
    assert [options["cluster"] for options in opens.started] == [
        Cluster("ml.g5.xlarge", count=4, volume_gb=200, keep_alive_s=600),
        Cluster("ml.g5.2xlarge", volume_gb=200, keep_alive_s=600),
    ]


def test_a_session_that_is_begun_anew_takes_the_place_of_one_of_its_name_that_has_ended(magics, digits):
    magics.raysm("-s digits", "1\n")
    begun = magics.raysm("start digits")
    magics.raysm("-s digits", "2\n")
    assert (len(digits.cells), len(begun.cells)) == (1, 1)


def test_a_variable_is_a_session_too(magics, shell):
    shell.user_ns["mine"] = other = FakeSession("other")
    magics.raysm("-s mine", "1\n")
    assert len(other.cells) == 1
    assert magics.raysm("connect mine") is other
    assert magics.raysm("status") is other


def test_inside_of_a_block_its_session_is_meant(magics):
    entered = FakeSession("entered")
    with inside(entered):
        magics.raysm("", "1\n")
    assert len(entered.cells) == 1


def test_a_name_is_attached_to_once(shell, digits):
    opens = FakeOpens(digits)
    magics = Magics(shell, opens)
    magics.raysm("-s digits", "1\n")
    magics.raysm("-s digits", "2\n")
    assert opens.attached == [("digits", None)]


def test_its_end_is_put_off(magics, digits):
    magics.raysm("connect digits")
    assert magics.raysm("keep 60") is digits
    assert digits.kept_minutes == 60


def test_the_latest_cell_that_nobody_waited_for_is_awaited_by_its_word(magics, digits, capsys):
    with pytest.raises(UsageError, match="no cell was sent with --async"):
        magics.raysm("result")
    magics.raysm("connect digits")
    digits.call = FakeCall(7, printed="said\n")
    magics.raysm("--async -o later", "7")
    magics.raysm("", "8")
    for _ in range(2):
        assert magics.raysm("result") == 7
    assert capsys.readouterr().out.startswith("said\n")


def test_its_dashboard_is_shown(magics):
    magics.raysm("connect digits")
    assert magics.raysm("dashboard").url.startswith("http://127.0.0.1")


def test_closing_it_switches_off_and_disconnects(magics, digits, capsys):
    magics.raysm("connect digits")
    magics.raysm("on")
    magics.raysm("close")
    assert digits.is_closed
    assert not magics.mode.is_on
    assert "the session digits is closed" in capsys.readouterr().out
    with pytest.raises(UsageError, match="no session is connected"):
        magics.raysm("status")


def test_cells_are_remote_until_off(magics):
    magics.raysm("connect digits")
    magics.raysm("on")
    assert magics.mode(["x\n"])[0] == "%%raysm --whole\n"
    magics.raysm("off")
    assert magics.mode(["x\n"]) == ["x\n"]


def test_nothing_is_switched_on_without_a_session(magics):
    with pytest.raises(UsageError, match=r"%raysm start begins one, %raysm connect NAME finds one"):
        magics.raysm("on")
    assert not magics.mode.is_on


@pytest.mark.parametrize(
    ("line", "cell", "message"),
    [
        ("conect digits", None, "there is no command 'conect'; %raysm has start, connect"),
        ("connect", None, "usage: %raysm connect [--profile NAME] NAME"),
        ("close a b", None, "unrecognized arguments: b"),
        ("start --instances two", None, "must be a number from 1 on, got 'two'"),
        ("start --idle soon", None, "must be a time, 30m, 90s or 2h (a bare number is minutes), got 'soon'"),
        ("start --budget much", None, "'much'"),
        ("keep", None, "TIME"),
        ("keep -5", None, "must be a time"),
        ("keep 5d", None, "must be a time"),
        ("", "1\n", "no session is connected"),
        ("--psuh a", "1\n", "unrecognized arguments: --psuh a; usage: %%raysm [-s NAME]"),
        ("status", "1\n", "unrecognized arguments: status"),
        ("--push a-b", "1\n", "must be names of variables, a,b, got 'a-b'"),
        ("-o 3x", "1\n", "must be the name of a variable, got '3x'"),
        ("--async --pull a", "1\n", "which --async does not wait for"),
        ("--on all,algo-1", "1\n", "must be head, all, or names of instances"),
        ("--on ,", "1\n", "must be head, all, or names of instances"),
        ("'open", "1\n", "no closing quotation"),
    ],
)
def test_a_wrong_line_is_one_line_of_ipythons_own_kind_of_error(magics, line, cell, message):
    with pytest.raises(UsageError) as raised:
        magics.raysm(line, cell)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@given(st.text(max_size=60), st.sampled_from([None, "1\n"]))
def test_no_line_fails_otherwise(line, cell):
    magics = Magics(types.SimpleNamespace(user_ns={}, execution_count=1), FakeOpens())
    with contextlib.suppress(UsageError, JobNotFound):
        magics.raysm(line, cell)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("--noblock", "--async"), ("-a", "--async"), ("--out x", "-o x"), ("--targets a", "--on a"), ("-b", "")],
)
def test_the_options_of_ipyparallel_are_understood(theirs, ours):
    assert CELL.read(theirs) == CELL.read(ours)


def test_an_instance_that_is_named_twice_is_one():
    assert CELL.read("--on algo-2,algo-1,algo-2").on == ("algo-2", "algo-1")


@pytest.mark.parametrize(("text", "minutes"), [("60", 60), ("90s", 1.5), ("1.5h", 90), ("20min", 20)])
def test_a_time_is_in_minutes_unless_it_has_a_unit(magics, digits, text, minutes):
    magics.raysm("connect digits")
    magics.raysm(f"keep {text}")
    assert digits.kept_minutes == minutes


def test_a_session_that_is_not_there_is_one_line(magics):
    with pytest.raises(JobNotFound) as raised:
        magics.raysm("connect digist")
    assert raised.value._render_traceback_() == ["JobNotFound: there is no session 'digist'"]


def test_which_session_a_cell_is_of_is_known_without_asking(magics, digits, shell):
    assert magics.session_of("%%raysm\nx") is None
    magics.raysm("connect digits")
    assert magics.session_of("%%raysm\nx") is digits
    assert magics.session_of("x") is digits
    assert magics.session_of("%%raysm -s unknown\nx") is None
    assert magics.session_of("%%raysm --wrong\nx") is None


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (State(name=SERVING, host="algo-1", address="http://127.0.0.1:1"), "the session takes calls\n"),
        (State(name="joined", host="algo-2", count=1, total=2), "algo-2 joined: 1 of 2 instances\n"),
        (State(name="dashboard", address="http://127.0.0.1:2"), ""),
    ],
)
def test_what_a_session_says_while_it_begins_is_printed_and_no_address(event, text, capsys):
    print_event(event)
    assert capsys.readouterr().out == text
