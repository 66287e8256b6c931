"""What the bootstrap says."""

from raysm.bootstrap.log import emit_event, remark
from raysm.contract.events import State, parse


def test_an_event_is_one_line_on_stdout_that_can_be_read_back(capfd):
    state = State(name="lost", host="algo-2", detail="two\nlines")
    emit_event(state)
    out, err = capfd.readouterr()
    assert out.count("\n") == 1
    assert parse(out.rstrip("\n")) == state
    assert not err


def test_a_remark_goes_to_stderr_where_no_event_is_looked_for(capfd):
    remark("algo-2 lost")
    assert capfd.readouterr() == ("", "raysm: algo-2 lost\n")
