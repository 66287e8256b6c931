"""The last collectives of ranks: which are shown, and the sentence about how ranks differ."""

import json

import pytest

from raysm.core.protocol.collectives import (
    Collective,
    differences,
    lines_of_collectives,
    parse_records,
)

NOW_S = 1000.0


def called(number, name="all_reduce", shape=(4,), *, group="default_pg", **facts):
    return Collective(
        group=group, number=number, name=name, shapes=(shape,), dtypes=("Float",), **facts
    )


def waits(number, *arguments, **facts):
    return called(number, *arguments, state="scheduled", age_s=12.0, **facts)


def entry(number, name="nccl:all_reduce", state="completed", **facts):
    return {
        "record_id": number,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": name,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": state,
        "retired": state == "completed",
        "is_p2p": False,
        "time_created_ns": int((NOW_S - 12) * 1e9),
        **facts,
    }


def parse(*entries):
    return parse_records(json.dumps([{"entries": entries}, {}]), NOW_S)


def test_last_completed_calls_the_first_pending_ones_and_the_last_are_kept():
    done = [entry(number) for number in range(1, 10)]
    pending = [entry(number, state="scheduled") for number in range(11, 50)]
    calls = parse(*done, entry(10, state="started"), *pending)
    assert [call.number for call in calls] == [8, 9, 10, 11, 12, 49]
    assert [call.state for call in calls[1:3]] == ["completed", "started"]


def test_call_of_gloo_is_completed_once_it_is_retired_and_one_of_nccl_is_not():
    gloo, timed_out = parse(
        entry(1, "gloo:broadcast", "scheduled", retired=True),
        entry(2, state="started", retired=True),
    )
    assert (gloo.name, gloo.state) == ("broadcast", "completed")
    assert timed_out.state == "started"


def test_groups_have_their_descriptions_and_sends_their_own_numbers():
    [named, unnamed, send] = parse(
        entry(1, process_group=["3", "mesh_dp"]),
        entry(2, process_group=["4", "undefined"]),
        entry(3, "nccl:send 0->1", is_p2p=True, p2p_seq_id=7),
    )
    assert (named.group, unnamed.group) == ("group 3 (mesh_dp)", "group 4")
    assert (send.name, send.number) == ("send 0->1", 7)


def test_lines_have_the_call_its_tensors_its_state_and_how_long_it_waits():
    two = Collective(
        group="group 4", number=9, name="all_gather", shapes=((2, 3), ()), dtypes=("Float", "Long")
    )
    assert [*lines_of_collectives([two, waits(5)])] == [
        "group 4 9: all_gather [2, 3] Float, [] Long, completed",
        "default_pg 5: all_reduce [4] Float, scheduled for 12 s",
    ]


def test_rank_that_has_not_called_what_others_wait_in_is_named():
    ranks = {0: [called(4), waits(5)], 1: [called(3), called(4)], 2: [called(4), waits(5)], 3: []}
    assert [*differences(ranks)] == [
        "collectives of default_pg: ranks 0, 2 called 5, all_reduce [4] Float; "
        "rank 1 called only 4, all_reduce [4] Float; rank 3 called none"
    ]


def test_ranks_that_call_different_collectives_are_named_with_their_calls():
    ranks = {0: [waits(5)], 1: [waits(5, "broadcast")], 2: [waits(5)]}
    assert [*differences(ranks)] == [
        "collective 5 of default_pg differs: ranks 0, 2 called all_reduce [4] Float; "
        "rank 1 called broadcast [4] Float"
    ]


@pytest.mark.parametrize(("name", "differs"), [("all_reduce", True), ("all_gather", False)])
def test_shapes_are_compared_where_each_rank_brings_the_same(name, differs):
    ranks = {0: [waits(5, name, (4,))], 1: [waits(5, name, (5,))]}
    assert bool([*differences(ranks)]) is differs


def test_rank_outside_of_a_group_is_not_missed_in_it():
    ranks = {0: [waits(1, group="group 2")], 1: [waits(1, group="group 2")], 2: []}
    assert not [*differences(ranks)]


def test_ranks_of_a_program_that_runs_are_not_compared():
    ranks = {0: [called(7), called(8, state="started", age_s=0.1)], 1: [called(6)]}
    assert not [*differences(ranks)]
