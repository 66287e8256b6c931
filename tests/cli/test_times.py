"""Where the time of a command went."""

from datetime import UTC, datetime

import pytest

from raysm.cli.times import Times
from raysm.client.job.description import Description, Status
from raysm.contract.job_api import TRAINING


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC)


def described(*transitions):
    return Description(
        name="a",
        arn="",
        api=TRAINING,
        status=Status.COMPLETED,
        transitions=tuple((status, at(begin), at(end)) for status, begin, end in transitions),
    )


def test_the_parts_add_up_to_the_whole_and_waiting_for_cores_is_apart_from_forming():
    times = Times(
        started_s=1000,
        sent_s=1002,
        formed_s=1050,
        done_s=1090,
        ended_s=1095,
        described=described(("Starting", 1002, 1003), ("Pending", 1003, 1033), ("Downloading", 1033, 1035)),
    )
    whole_s, parts = times.parts({"load": 4.0, "similarity": 26.0})
    assert whole_s == 95
    assert parts == {
        "preparing and sending": 2,
        "waiting for cores": 31,
        "downloading": 2,
        "forming the cluster": 15,
        "starting the workload": 10,
        "load": 4,
        "similarity": 26,
        "storing and bringing the result": 5,
    }
    assert sum(parts.values()) == whole_s


def test_on_aws_a_job_waits_for_instances():
    times = Times(
        started_s=0, sent_s=1, formed_s=9, ended_s=10, is_billed=True, described=described(("Starting", 1, 5))
    )
    assert "waiting for instances" in times.parts({})[1]


@pytest.mark.parametrize(("formed_s", "done_s"), [(None, None), (500.0, 400.0), (1.0, None)])
def test_clocks_that_differ_and_what_was_not_seen_make_no_negative_part(formed_s, done_s):
    times = Times(started_s=100, sent_s=101, formed_s=formed_s, done_s=done_s, ended_s=110)
    whole_s, parts = times.parts({})
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == pytest.approx(whole_s)
