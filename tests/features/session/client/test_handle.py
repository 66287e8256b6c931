"""``raysm.Session`` on a server of this process."""

import itertools
import threading

import pytest

import raysm
from raysm.errors import CallCancelled, InvalidRequest, JobFailed, ServiceError, SessionEnded
from raysm.features.session.client.current import make_current
from raysm.features.session.client.view import describe_detached, list_facts
from tests.support.sessions import connected_session, served, state
from tests.support.stub_job import StubJob
from tests.support.waiting import until


def shouted(text):
    print(text.upper())
    return len(text)


def test_run_prints_and_returns_and_submit_is_a_future(session, capsys):
    assert session.run(shouted, "abc") == 3
    assert capsys.readouterr().out == "ABC\n"
    call = session.submit(shouted, text="abcd")
    assert (call.result(timeout=60), call.name) == (4, "shouted")
    assert capsys.readouterr().out == ""


def test_what_was_just_submitted_is_in_the_session_when_a_client_has_left(server, tmp_path):
    before = len(server.remote.executed)
    for number in range(20):
        with connected_session(tmp_path, server) as leaving:
            leaving.submit(shouted, str(number))
    until(lambda: len(server.remote.executed) == before + 20)


def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent(session, server):
    before = len(server.remote.executed)
    with pytest.raises(InvalidRequest, match=r"shouted .*\(text\)"):
        session.run(shouted, 1, 2, 3)
    assert len(server.remote.executed) == before


def test_a_map_is_an_iterator_over_any_number_of_items_and_sends_its_function_once(session, server):
    before = len(server.remote.functions)
    assert list(session.map(abs, range(-3000, 0))) == list(range(3000, 0, -1))
    assert len(server.remote.functions) == before + 1
    assert sorted(session.map(abs, [-3, -1, -2], ordered=False)) == [1, 2, 3]
    # Of several iterables the shortest ends it.
    assert list(session.map(pow, [2, 3, 4], [5, 6])) == [2**5, 3**6]


def test_a_map_takes_its_items_one_by_one_and_its_first_failure_names_the_item(session):
    endless = session.map(abs, itertools.count())
    assert [next(endless) for _ in range(3)] == [0, 1, 2]
    endless.close()
    with pytest.raises(ZeroDivisionError) as raised:
        list(session.map(divmod, [1, 7], [1, 0]))
    assert any(note.startswith("item 1: ") for note in raised.value.__notes__)
    good, bad = session.map(divmod, [1, 7], [1, 0], return_exceptions=True)
    assert (good, type(bad)) == ((1, 0), ZeroDivisionError)


def test_another_python_may_send_source_but_no_pickles(session):
    session._connection.pickle_version, own = "2.7", session._connection.pickle_version
    for call in (
        lambda: session.submit(print),
        lambda: next(session.map(abs, [1])),
        lambda: session.push(a=1),
        lambda: session.pull("a"),
    ):
        with pytest.raises(InvalidRequest, match=r"Python 2\.7"):
            call()
    # It was sent, and this server interrupts all cells.
    assert session.cell("1").exception() is not None
    session._connection.pickle_version = own


def test_calls_of_the_session_are_found_the_latest_first_without_the_batches_of_a_map(session):
    last = session.submit(shouted, "last")
    last.result(timeout=60)
    found = session.calls(limit=5)
    assert found[0] is last
    assert len({call.id for call in found}) == len(found) <= 5


def test_a_cell_is_interrupted_where_it_is_not_run(session):
    with pytest.raises(CallCancelled, match="a cell "):
        session.exec("x = 1")
    assert session.interrupt() == 0


def test_names_are_completed_and_the_end_is_put_off(session):
    assert session.complete("alph") == ["alpha", "alphabet"]
    assert session.keep(minutes=120).ends_in_s > 7000


def test_a_command_prints_and_tells_its_exit_code(session, capsys):
    assert session.shell("echo hi; exit 4") == 4
    assert capsys.readouterr().out == "hi\n"


def test_it_is_shown_with_its_name_and_how_it_is(session):
    assert repr(session).startswith("<session digits: state open")
    assert "<b>digits</b>" in session._repr_html_()
    assert session.state.hosts == ("algo-1", "algo-2")
    assert session.name == "digits"


def test_what_is_decorated_is_called_in_the_session_inside_of_its_block(session):
    remote = raysm.remote(shouted)
    with make_current(session):
        assert remote.submit("abc").result(timeout=60) == 3


def test_one_that_is_not_open_says_what_to_do():
    session = raysm.Session(name="digits")
    with pytest.raises(SessionEnded, match=r"digits is not open.*start\(\).*attach"):
        session.run(shouted, "x")
    assert repr(session) == "<session digits: not open>"
    session._name = "<b>"
    assert session._repr_html_() == "<p>&lt;session &lt;b&gt;: not open&gt;</p>"
    session.close()
    session.detach()
    with pytest.raises(SessionEnded, match="session is not open"):
        raysm.Session().run(print)


@pytest.mark.parametrize(
    ("fields", "label", "value"),
    [
        ({}, "instances", "2: 8 CPUs"),
        ({}, "cost", None),
        (
            {"usd": 0.5, "usd_per_hour": 2.0, "budget_usd": 20.0},
            "cost",
            "0.50 USD of 20.00 USD, 2.00 USD an hour",
        ),
        ({"busy": 1, "ends_in_s": None}, "ends", "not while it is busy"),
        ({"ends_in_s": 40.0}, "ends", "in 40 s: idle for 30 min with a client attached"),
    ],
)
def test_the_facts_of_a_session(fields, label, value):
    assert dict(list_facts(state(**fields))).get(label) == value
    assert (
        "ends after 5 min without a call; raysm session keep digits 60m"
        in describe_detached("digits", 300.0)[1]
    )


@pytest.mark.parametrize(("is_billed", "waits"), [(False, [60.0]), (True, [])])
def test_the_end_of_its_block_closes_it_and_waits_for_the_job_unless_on_aws(
    tmp_path, is_billed, waits
):
    with served(tmp_path) as server:
        session, job = raysm.Session(name="digits"), StubJob(tmp_path, server.port)
        job.service.target.is_billed = is_billed
        session._connect(job, lambda event: None)
        with session:
            assert session.run(shouted, "a") == 1
        server.thread.join(60)
        assert (server.why, job.waits) == ("it was closed", waits)


def test_who_closes_it_is_not_told_that_it_ends_and_everybody_else_is(tmp_path, caplog):
    with served(tmp_path) as server:
        one, other = raysm.Session(name="one"), raysm.Session(name="other")
        for session in (one, other):
            session._connect(StubJob(tmp_path, server.port), lambda event: None)
        # Counted by the way on which notices come.
        until(lambda: one.state.clients == 2)
        one.close()
        until(lambda: caplog.messages)
        other.detach()
    assert caplog.messages == ["other: the session ends: it was closed"]


def test_one_that_cannot_be_told_to_end_has_its_job_stopped(tmp_path, caplog):
    def refuse(why):
        raise OSError("No space left on device")

    with served(tmp_path) as server:
        session, job = raysm.Session(name="digits"), StubJob(tmp_path, server.port)
        session._connect(job, lambda event: None)
        close, server.host.close = server.host.close, refuse
        session.close()
        server.host.close = close
    assert job.is_cancelled
    assert (
        f"the session {job.name} does not close, so its job is stopped instead: No space left"
        in caplog.text
    )


def test_the_job_of_one_that_cannot_be_begun_is_stopped_and_where_it_cannot_be_that_is_told(
    tmp_path, caplog
):
    job = StubJob(tmp_path, None)
    with pytest.raises(JobFailed, match="before it accepted calls"):
        raysm.Session(name="digits")._connect_or_cancel(job, lambda event: None)
    assert job.is_cancelled
    assert caplog.messages == []

    def refuse():
        raise ServiceError("the endpoint cannot be reached")

    job.cancel = refuse
    with pytest.raises(JobFailed, match="before it accepted calls"):
        raysm.Session(name="digits")._connect_or_cancel(job, lambda event: None)
    assert "cannot be stopped and may cost money: the endpoint cannot be reached" in caplog.text
    assert f"raysm stop {job.name}" in caplog.text


def test_an_option_with_a_typing_error_is_refused_with_the_one_that_is_meant():
    with pytest.raises(InvalidRequest, match="'idle_timout_s'.* idle_timeout_s"):
        raysm.Session(idle_timout_s=60)
    with pytest.raises(InvalidRequest, match="'clutser'.* cluster"):
        raysm.Session(clutser=None)


def test_an_argument_that_cannot_be_pickled_is_named(session):
    with pytest.raises(InvalidRequest, match="pushed.* model: .*lock"):
        session.push(model={"w": threading.Lock()})
    with pytest.raises(InvalidRequest, match=r"print .*args\[0\]: .*lock"):
        session.submit(print, {"fine": 1, "lock": threading.Lock()})
    with pytest.raises(InvalidRequest, match="^item 1.*lock"):
        list(session.map(abs, [1, {"w": threading.Lock()}]))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda session: session.exec(shouted), r"exec: source .*<function.*run\("),
        (
            lambda session: session.exec("1", args="--lr 1"),
            r"exec: args .*'--lr 1'",
        ),
        (lambda session: session.push(), "push: .*no value"),
        (lambda session: session.push(k=3, on="algo-2"), r"push\('algo-2'"),
        (lambda session: session.keep("1h"), "keep: minutes.*'1h'"),
        (lambda session: session.calls(limit=0), "calls: limit.*got 0"),
        (lambda session: session.map(abs, 3), "map: items.*got 3"),
        (lambda session: session.map(abs, [1], retries="2"), "map: retries.*'2'"),
        (
            lambda session: session.run(shouted, "a", m=3),
            r"shouted .*'m'.*\(text\)",
        ),
        (lambda session: session.run("abs"), "function, got 'abs'"),
        (lambda session: session.put("/no/such/file"), "'/no/such/file'"),
        (lambda session: session.submit(abs, -1).result("x"), "timeout .*'x'"),
        (lambda session: raysm.Session.attach(3), "attach: .*got 3"),
        (lambda session: raysm.Session(max_runtime_s="1h"), "max_runtime_s.*'1h'"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_a_wrong_argument_is_refused_with_its_name_and_value(session, wrong, told):
    with pytest.raises(InvalidRequest, match=told):
        wrong(session)
