"""Stacks: what processes wait for, which are alike, and the sentence about them."""

from dataclasses import replace

import pytest

from raysm.core.protocol.stacks import (
    Frame,
    ProcessStack,
    Thread,
    compare_calls,
    group,
    lines_of,
    native_remarks,
    pack,
    parse,
    sentence,
    unpack,
)

C10D = "/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
DUMP = """\
Stack (most recent call first):
  File "/app/data.py", line 17 in load
  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed
  File "/app/train.py", line 41 in <module>
Stack (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap
"""


def own(file, line, source=""):
    return Frame(file=file, line=line, function="f", is_own=True, source=source)


def rank(number, *frames, **facts):
    threads = (Thread(frames=frames, is_main=True),) if frames else ()
    return ProcessStack(
        host="algo-1", pid=100 + number, role=f"rank {number}", threads=threads, **facts
    )


def waiting(number):
    return rank(
        number,
        Frame(file=C10D, line=3000, function="all_reduce"),
        Frame(file=C10D.replace("distributed_c10d", "c10d_logger"), line=80, function="wrapper"),
        own("/app/train.py", 41),
    )


def test_dump_becomes_the_stacks_of_its_threads():
    first, other = parse(DUMP)
    assert [(frame.place, frame.function) for frame in first.frames] == [
        ("data.py:17", "load"),
        ("train.py:41", "<module>"),
    ]
    assert [frame.line for frame in other.frames] == [327, 1002]


def test_dump_that_was_cut_off_has_the_frames_that_it_has():
    assert parse(DUMP[:200])[0].frames
    assert parse("") == ()


def test_sentence_names_who_waits_in_a_collective_and_the_line_of_the_odd_one():
    ranks = [waiting(0), rank(1, own("/app/data.py", 17, "time.sleep(9)")), waiting(2), waiting(3)]
    assert sentence(group(ranks)) == (
        "ranks 0, 2, 3 wait in all_reduce (train.py:41); rank 1 is in `time.sleep(9)` (data.py:17)"
    )


def test_odd_stack_is_shown_first():
    ranks = [waiting(0), waiting(1), rank(2, own("/app/data.py", 17))]
    assert [each.names for each in group(ranks)] == ["rank 2", "ranks 0, 1"]
    assert next(lines_of(group(ranks))).startswith("rank 2 is in")


def test_stopped_process_is_named_with_its_state():
    ranks = [waiting(0), rank(1, problem="stopped by a signal (SIGSTOP)")]
    assert "rank 1 is stopped by a signal (SIGSTOP)" in sentence(group(ranks))


@pytest.mark.parametrize(
    ("file", "function", "words"),
    [
        ("/lib/python3.11/queue.py", "get", "waits for a queue (train.py:41)"),
        ("/lib/python3.11/threading.py", "wait", "waits for a lock (train.py:41)"),
        ("/lib/site-packages/ray/_private/worker.py", "get", "waits in ray.get (train.py:41)"),
        ("/lib/python3.11/socket.py", "readinto", "waits for the network (train.py:41)"),
        ("/lib/site-packages/torch/utils/data/dataloader.py", "_get_data", "waits for the data loader (train.py:41)"),
        (C10D, "new_group", "forms a process group (train.py:41)"),
    ],
)  # fmt: skip
def test_library_call_above_the_users_line_says_what_is_waited_for(file, function, words):
    process = rank(0, Frame(file=file, line=1, function=function), own("/app/train.py", 41))
    assert group([process])[0].act == words


def test_thread_that_runs_the_users_code_is_looked_at_before_an_idle_main_thread():
    idle = Thread(frames=(Frame(file=C10D, line=1, function="main_loop"),), is_main=True)
    busy = Thread(frames=(own("/app/loop.py", 5, "step()"),))
    process = ProcessStack(host="algo-2", pid=9, role="worker", threads=(idle, busy))
    assert sentence(group([process])) == "worker 9 on algo-2 is in `step()` (loop.py:5)"


def test_packed_stacks_are_the_same_after_the_way():
    processes = [waiting(0), rank(1, problem="silent for 5 s")]
    assert unpack(pack(processes)) == processes
    assert pack(processes).isascii()
    with pytest.raises(ValueError, match="not the stacks"):
        unpack("no stacks")


def test_data_loader_that_waits_for_events_is_named_as_such():
    frames = [
        Frame(file="/lib/python3.11/selectors.py", line=415, function="select"),
        Frame(file="/lib/python3.11/multiprocessing/queues.py", line=122, function="get"),
        Frame(file="/torch/utils/data/dataloader.py", line=1284, function="_try_get_data"),
        own("/app/train.py", 41),
    ]
    assert sentence(group([rank(0, *frames)])) == "rank 0 waits for the data loader (train.py:41)"


def native(name):
    return Frame(file="/usr/lib/libnccl.so.2", line=0, function=name, is_native=True)


def test_native_frames_stand_in_the_lines_and_tell_ranks_apart():
    at = own("/app/train.py", 41, "step()")
    ranks = [rank(0, native("poll"), at), rank(1, native("poll"), at), rank(2, native("send"), at)]
    groups = group(ranks)
    assert [each.names for each in groups] == ["rank 2", "ranks 0, 1"]
    assert groups[0].act == "is in `step()` (train.py:41)"
    assert "    libnccl.so.2 send" in [*lines_of(groups)]


def test_reason_for_missing_native_frames_is_given_once_with_its_instances():
    ranks = [rank(number, native_problem="no py-spy") for number in range(3)]
    assert [*native_remarks(ranks)] == ["no native frames on algo-1: no py-spy"]


def call(file, line, function, source=""):
    return Frame(
        file=f"/app/raysm/source/{file}", line=line, function=function, is_own=True, source=source
    )


START = call("train.py", 50, "<module>", "main()")
EVALUATES = (
    call("train.py", 16, "evaluate"),
    call("train.py", 36, "main", "evaluate(model)"),
    START,
)
AVERAGES = (call("model.py", 19, "average"), call("train.py", 34, "main", "average(model)"), START)


def test_the_function_in_which_the_calls_of_ranks_part_is_named_with_both_lines():
    # Each instance has the files in a folder of its own.
    elsewhere = [
        replace(frame, file=f"/algo-2/raysm/source/{frame.place.partition(':')[0]}")
        for frame in EVALUATES
    ]
    ranks = [rank(0, *AVERAGES), rank(1, *elsewhere), rank(2, *AVERAGES)]
    assert list(compare_calls(ranks)) == [
        "their calls part in main (train.py): "
        "ranks 0, 2 at line 34 `average(model)`; rank 1 at line 36 `evaluate(model)`"
    ]


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param([rank(0, *AVERAGES)], id="one rank"),
        pytest.param([rank(0, *AVERAGES), rank(1, *AVERAGES)], id="equal calls"),
        pytest.param([rank(0, *AVERAGES), rank(1, START)], id="one has returned from all others"),
        pytest.param([rank(0, *AVERAGES[1:]), rank(1, *EVALUATES[1:])], id="the innermost lines"),
        pytest.param(
            [rank(0, *AVERAGES), rank(1, call("other.py", 3, "run"))], id="other programs"
        ),
        pytest.param([rank(0, *AVERAGES), rank(1)], id="no stack"),
    ],
)
def test_calls_that_part_in_no_function_or_where_the_sentence_says_it_are_not_compared(ranks):
    assert list(compare_calls(ranks)) == []
