"""What a call has printed, by positions."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from raysm.workloads.session.output import Output


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
