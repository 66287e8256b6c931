"""What a job of this machine is made of."""

from pathlib import Path, PurePosixPath

import pytest

from raysm.contract.job_api import PROCESSING
from raysm.errors import InvalidRequest
from raysm.local.checkpoints import FolderStore
from raysm.local.job_spec import Channel, Checkpoints, JobSpec, number_hosts

GROUPS = number_hosts(("a", "ml.m5.large", 2), ("b", "ml.g5.xlarge", 1))


def spec(groups=GROUPS, **fields):
    return JobSpec(name="job", groups=groups, command=("true",), **fields)


def test_a_channel_lies_where_its_api_has_channels_or_where_the_request_says():
    channel = Channel(name="x", source=Path("/x"))
    processing = spec(number_hosts(("a", "ml.m5.large", 1)), api=PROCESSING)
    assert spec().place_of(channel) == PurePosixPath("input/data/x")
    assert processing.place_of(channel) == PurePosixPath("processing/input/x")
    assert spec().place_of(Channel(name="x", source=Path("/x"), target=PurePosixPath("y"))) == PurePosixPath("y")


def test_a_processing_job_has_neither_groups_nor_checkpoints(tmp_path):
    with pytest.raises(InvalidRequest, match="a Processing job has instances of one type"):
        spec(api=PROCESSING)
    checkpoints = Checkpoints(store=FolderStore(tmp_path), uri="file:///x")
    with pytest.raises(InvalidRequest, match="a Processing job has no checkpoints; use training"):
        spec(GROUPS[:1], api=PROCESSING, checkpoints=checkpoints)
