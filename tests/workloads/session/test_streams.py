"""What is printed goes to whoever asked for it."""

import io
import sys

from raysm.contract.events import Metric, line
from raysm.workloads.session.output import Output
from raysm.workloads.session.streams import RoutedStream, events_apart, routed

METRIC = line(Metric(name="loss", value=0.5))


def text_of(output):
    return [(piece.stream, piece.text) for piece in output.since(0)]


def test_each_text_goes_where_the_route_says_when_it_is_printed():
    log, output, route = io.StringIO(), Output(), []
    stream = RoutedStream("stderr", log, lambda: route[0] if route else None)
    stream.write("to the log\n")
    route.append(output)
    assert stream.write("to the call\n") == 12
    route.clear()
    stream.write("to the log\n")
    assert text_of(output) == [("stderr", "to the call\n")]
    assert log.getvalue() == "to the log\n" * 2


def test_the_jobs_events_go_to_its_log_whoever_prints_them():
    log, output = io.StringIO(), Output()
    RoutedStream("stdout", log, lambda: output).write(f"before\n{METRIC}\nafter\n")
    assert log.getvalue() == f"{METRIC}\n"
    assert text_of(output) == [("stdout", "before\nafter\n")]


def test_what_only_looks_like_an_event_stays_where_it_was():
    assert events_apart('{"raysm": 1, nonsense\n') == ('{"raysm": 1, nonsense\n', [])


def test_both_streams_are_replaced_and_put_back():
    output, before = Output(), (sys.stdout, sys.stderr)
    with routed(lambda: output):
        print("out")
        print("err", file=sys.stderr)
        assert not sys.stdout.isatty()
        assert sys.stdout.writable()
        sys.stdout.flush()
    assert (sys.stdout, sys.stderr) == before
    assert text_of(output) == [("stdout", "out\n"), ("stderr", "err\n")]
