"""What calls print, and the streams of the process."""

import io
import sys
import threading

from hypothesis import given
from hypothesis import strategies as st

from raysm.contract.events import Metric, line
from raysm.workloads.session.output import Output, RoutedStream, events_apart, routed


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(max_size=5))), st.integers(0, 60))
def test_what_follows_a_position_is_the_rest_of_all_that_was_printed(written, position):
    output = Output()
    for stream, text in written:
        output.write(stream, text)
    whole = "".join(text for _, text in written)
    assert "".join(piece.text for piece in output.since(position)) == whole[position:]
    assert output.end == len(whole)


def test_streams_stay_apart_and_in_their_order():
    output = Output()
    for stream, text in (("stdout", "a"), ("stdout", "b"), ("stderr", "c"), ("stdout", "d")):
        output.write(stream, text)
    assert [(piece.stream, piece.text) for piece in output.since(0)] == [
        ("stdout", "ab"),
        ("stderr", "c"),
        ("stdout", "d"),
    ]


def test_of_very_much_the_end_is_kept_with_its_positions():
    output = Output(most=100)
    for number in range(1000):
        output.write("stdout" if number % 2 else "stderr", f"{number:03}")
    kept = output.since(0)
    assert sum(len(piece.text) for piece in kept) <= 103
    assert kept[0].start == 3000 - sum(len(piece.text) for piece in kept)
    assert kept[-1].text == "999"


def test_who_waits_is_woken_by_each_text_and_not_by_nothing():
    woken = []
    output = Output(lambda: woken.append(1))
    output.write("stdout", "x")
    output.write("stdout", "")
    assert woken == [1]


def test_threads_that_write_at_once_lose_nothing():
    output = Output()
    threads = [threading.Thread(target=lambda: [output.write("stdout", "x") for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert output.end == 8000 == len("".join(piece.text for piece in output.since(0)))


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
