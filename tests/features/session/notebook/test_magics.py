"""The magics of one shell, with sessions that a test made."""

import contextlib
import re
import threading
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.error import UsageError

import raysm
from raysm.core.request import Cluster
from raysm.errors import CallFailed, InvalidRequest, JobNotFound, SessionEnded
from raysm.features.session.notebook.cells import PerInstance, await_cell, run_cell
from raysm.features.session.notebook.magics import (
    CELL,
    COMMANDS,
    Completer,
    Magics,
    RemoteMode,
    load_ipython_extension,
    unload_ipython_extension,
)
from raysm.features.session.protocol import RemoteError
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


def magics_of(shell, opens):
    return Magics(shell, opens.start, opens.attach)


@pytest.fixture
def digits():
    return FakeSession("digits")


@pytest.fixture
def shell():
    return types.SimpleNamespace(user_ns={}, execution_count=7)


@pytest.fixture
def magics(shell, digits):
    return magics_of(shell, FakeOpens(digits))


def test_a_session_is_started_as_the_line_says(shell):
    opens = FakeOpens()
    magics = magics_of(shell, opens)
    assert magics.raysm("start digits --instances 2 --idle 10m").name == "digits"
    magics.raysm("start --type ml.m5.large --instances 3")
    assert opens.started == [
        {"name": "digits", "cluster": Cluster(count=2), "idle_timeout_s": 600.0},
        {"cluster": Cluster("ml.m5.large", count=3)},
    ]


def test_a_variable_is_a_session_too(magics, shell):
    shell.user_ns["mine"] = other = FakeSession("other")
    magics.raysm("-s mine", "1\n")
    assert len(other.cells) == 1
    assert magics.raysm("connect mine") is other
    assert magics.raysm("status") is other


def test_the_latest_cell_that_nobody_waited_for_is_awaited_by_its_word(magics, digits, capsys):
    with pytest.raises(UsageError, match="--async"):
        magics.raysm("result")
    magics.raysm("connect digits")
    digits.call = FakeCall(7, printed="said\n")
    magics.raysm("--async -o later", "7")
    magics.raysm("", "8")
    for _ in range(2):
        assert magics.raysm("result") == 7
    assert capsys.readouterr().out.startswith("said\n")


@pytest.mark.parametrize(
    ("line", "cell", "message"),
    [
        ("conect digits", None, "'conect'"),
        ("connect", None, "%raysm connect [--profile NAME] NAME"),
        ("close a b", None, "arguments: b"),
        ("start digits --instance 2", None, "arguments: --instance 2"),
        ("start --idle soon", None, "'soon'"),
        ("start --idle 10", None, "10s, 10m or 10h"),
        ("", "1\n", "%raysm connect NAME"),
        ("--psuh a", "1\n", "--psuh a; usage: %%raysm [-s NAME]"),
        ("'open", "1\n", "no closing quotation"),
    ],
)
def test_a_wrong_line_is_one_line_of_ipythons_own_kind_of_error(magics, line, cell, message):
    with pytest.raises(UsageError) as raised:
        magics.raysm(line, cell)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_help_of_the_magic_has_each_command_at_the_beginning_of_a_line():
    lines = [line.strip() for line in (Magics.raysm.__doc__ or "").splitlines()]
    usages = [line for line in lines if "%raysm" in line]
    assert all(line.startswith(("%raysm ", "%%raysm ")) for line in usages)
    assert set(COMMANDS) <= set(re.findall(r"\w+", " ".join(usages)))


@given(st.text(max_size=60), st.sampled_from([None, "1\n"]))
def test_no_line_fails_otherwise(line, cell):
    magics = magics_of(types.SimpleNamespace(user_ns={}, execution_count=1), FakeOpens())
    with contextlib.suppress(UsageError, JobNotFound):
        magics.raysm(line, cell)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--noblock", "--async"),
        ("-a", "--async"),
        ("--out x", "-o x"),
        ("--targets a", "--on a"),
        ("-b", ""),
    ],
)
def test_the_options_of_ipyparallel_are_understood(theirs, ours):
    assert CELL.read(theirs) == CELL.read(ours)


@pytest.mark.parametrize(
    ("text", "minutes"), [("60", 60), ("90s", 1.5), ("1.5h", 90), ("20min", 20)]
)
def test_a_time_is_in_minutes_unless_it_has_a_unit(magics, digits, text, minutes):
    magics.raysm("connect digits")
    magics.raysm(f"keep {text}")
    assert digits.kept_minutes == minutes


def test_after_the_end_of_a_session_its_name_is_that_of_the_next_one_and_no_cell_runs_here(
    shell, digits
):
    opens = FakeOpens(digits)
    magics = magics_of(shell, opens)
    magics.raysm("on digits")
    digits.call = FakeCall(error=SessionEnded("it was closed"))
    later = opens.sessions["digits"] = FakeSession("digits")
    with pytest.raises(SessionEnded):
        magics.raysm("-s digits", "1\n")
    magics.raysm("-s digits", "2\n")
    assert len(later.cells) == 1
    with pytest.raises(UsageError):
        magics.raysm("", "3\n")
    assert magics.mode.is_on


def test_a_session_that_is_not_there_is_one_line(magics):
    with pytest.raises(JobNotFound) as raised:
        magics.raysm("connect digist")
    assert raised.value._render_traceback_() == ["JobNotFound: there is no session 'digist'"]


# Every cell remote, and names completed by the session


@pytest.fixture
def mode():
    mode = RemoteMode()
    mode.is_on = True
    return mode


def test_whoever_types_does_not_wait_for_a_session_that_is_away_or_has_ended(mode):
    is_back = threading.Event()

    class Away(FakeSession):
        def complete(self, text):
            is_back.wait()
            raise SessionEnded("it was idle")

    completer = Completer(mode, lambda cell: Away())
    assert completer.matches("mod", "mod") == ("", [])
    is_back.set()
    assert completer.matches("mod", "mod") == ("", [])
    assert Completer(mode, lambda cell: None).matches("mod", "mod") == ("", [])
    completer.close()


def test_ipython_loads_it_once_and_takes_it_out_whole():
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    assert raysm.load_ipython_extension is load_ipython_extension
    shell = interactive.InteractiveShell()

    def parts():
        tables = shell.magics_manager.magics.values()
        return [
            len(shell.input_transformers_cleanup),
            len(shell.Completer.custom_matchers),
            *("raysm" in table for table in tables),
        ]

    before = parts()
    load_ipython_extension(shell)
    load_ipython_extension(shell)
    assert parts() == [before[0] + 1, before[1] + 1, True, True]
    with pytest.raises(UsageError, match="%raysm connect NAME"):
        shell.magics_manager.magics["cell"]["raysm"]("", "1\n")
    unload_ipython_extension(shell)
    unload_ipython_extension(shell)
    assert parts() == before


def test_what_a_line_says_of_instances_leaves_the_profiles_others(shell, tmp_path):
    (tmp_path / "raysm.toml").write_text(
        '[profile.gpu.cluster]\ninstance_type = "ml.g5.xlarge"\nvolume_gb = 200\nkeep_alive_s = 600\n'
    )
    opens = FakeOpens()
    magics = magics_of(shell, opens)
    with contextlib.chdir(tmp_path):
        magics.raysm("start --profile gpu --instances 4")
        magics.raysm("start --profile gpu --type ml.g5.2xlarge")
    assert [options["cluster"] for options in opens.started] == [
        Cluster("ml.g5.xlarge", count=4, volume_gb=200, keep_alive_s=600),
        Cluster("ml.g5.2xlarge", volume_gb=200, keep_alive_s=600),
    ]


TRACEBACK = (
    'Traceback (most recent call last):\n  File "Cell In[3]", line 2, in <module>\n    1/0\n'
    "ZeroDivisionError: no"
)


def run(session, line="", source="x = 1\n", variables=None):
    return run_cell(session, CELL.read(line), source, {} if variables is None else variables, 7)


def test_a_variable_that_the_session_lacks_is_one_line():
    with pytest.raises(InvalidRequest, match="--pull.*'model'"):
        run(FakeSession(), "--pull model")


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("", [None]),
        ("--on head", [None]),
        ("--on algo-2", ["algo-2"]),
        ("--targets algo-2,algo-1", ["algo-2", "algo-1"]),
        ("-t all", ["algo-1", "algo-2"]),
    ],
)
def test_a_cell_runs_on_the_instances_that_its_line_names(line, hosts):
    session = FakeSession(calls={"algo-1": FakeCall(1), "algo-2": FakeCall(2)})
    run(session, line)
    assert [host for _, _, host in session.cells] == hosts


def test_an_instance_that_there_is_not_is_named_before_anything_runs():
    session = FakeSession(calls={"algo-1": FakeCall(), "algo-2": FakeCall()})
    with pytest.raises(InvalidRequest, match="'algo2'.*algo-1, algo-2"):
        run(session, "--on algo-1,algo2")
    assert session.cells == []


def test_variables_go_to_the_instances_of_the_cell_and_come_back_from_each():
    session, variables = FakeSession(calls={"algo-1": FakeCall(), "algo-2": FakeCall()}), {"a": 1}
    run(session, "--on all --push a --pull a", variables=variables)
    assert session.variables == {"a@algo-1": 1, "a@algo-2": 1}
    assert variables["a"] == {"algo-1": 1, "algo-2": 1}
    run(session, "--on algo-2 --pull a", variables=variables)
    assert variables["a"] == 1


def test_the_future_of_several_instances_has_one_for_each():
    session = FakeSession(calls={"algo-1": FakeCall(1), "algo-2": FakeCall(2)})
    future = run(session, "--on all --async")
    assert future == session.calls
    assert await_cell(session, future) == {"algo-1": 1, "algo-2": 2}


def test_each_line_has_its_instance_before_it_and_each_value_too(capsys):
    calls = PerInstance(
        {"algo-1": FakeCall(3, printed="one\ntwo"), "algo-2": FakeCall(4, printed="three\n")}
    )
    values = await_cell(FakeSession(), calls)
    assert capsys.readouterr().out == "[algo-1] one\n[algo-1] two\n[algo-2] three\n"
    assert repr(values) == "algo-1: 3\nalgo-2: 4"


def test_a_failure_is_raised_when_all_have_ended_and_names_all_that_failed(capsys):
    told = RemoteError(type="ValueError", message="no", traceback="Traceback\nValueError: no")
    failing = FakeCall(error=ValueError("no"), told=told)
    calls = PerInstance(
        {"algo-1": failing, "algo-2": FakeCall(printed="well\n"), "algo-3": failing}
    )
    with pytest.raises(ValueError, match="no") as raised:
        await_cell(FakeSession(), calls)
    assert raised.value._render_traceback_() == ["Traceback", "ValueError: no"]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("[algo-2] well\n", "failed on algo-1, algo-3\n")


def test_an_interrupt_is_for_all_of_them():
    calls = PerInstance({"algo-1": FakeCall(interrupted=True), "algo-2": FakeCall()})
    with pytest.raises(KeyboardInterrupt) as raised:
        await_cell(FakeSession(), calls)
    assert calls["algo-2"].is_cancelled
    assert len(raised.value._render_traceback_()) == 1


def told(kind="ZeroDivisionError", traceback=TRACEBACK):
    return RemoteError(type=kind, message="no", traceback=traceback)


def shown_for(call):
    with pytest.raises(Exception) as raised:  # noqa: PT011
        await_cell(FakeSession(), call)
    return raised.value


@pytest.mark.parametrize("error", [SyntaxError("no"), ExceptionGroup("no", [ValueError()])])
def test_one_that_ipython_would_draw_itself_is_another(error):
    shown = shown_for(FakeCall(error=error, told=told(type(error).__name__)))
    assert isinstance(shown, CallFailed)
    assert shown._render_traceback_() == TRACEBACK.splitlines()


def test_a_connection_that_failed_is_one_line():
    error = SessionEnded("the session digits has ended: it was idle")
    shown = shown_for(FakeCall(error=error))
    assert shown._render_traceback_() == ["SessionEnded: the session digits has ended: it was idle"]
