"""Tags of Batch's jobs and queues."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.tagging import Tagging
from tests.support.batch_queues import HandBatch
from tests.support.hand_clock import HandClock


@pytest.fixture
def batch(tmp_path):
    return HandBatch(tmp_path, HandClock())


@pytest.mark.parametrize("thing", ["job", "queue"])
def test_tags_come_and_go(batch, thing):
    arn = {"job": batch.send("a").arn, "queue": batch.queue.arn}[thing]
    operations = Tagging(batch.jobs, batch.resources).operations
    operations["TagResource"]({"resourceArn": arn, "tags": {"a": "1", "b": "2"}}, "us-east-1")
    operations["UntagResource"]({"resourceArn": arn, "tagKeys": ["a"]}, "us-east-1")
    assert operations["ListTagsForResource"]({"resourceArn": arn}, "us-east-1") == {"tags": {"b": "2"}}


def test_there_are_not_too_many(batch):
    operations = Tagging(batch.jobs, batch.resources).operations
    tags = {str(number): "" for number in range(51)}
    with pytest.raises(ApiError, match="at most 50 tags, this is 51"):
        operations["TagResource"]({"resourceArn": batch.queue.arn, "tags": tags}, "us-east-1")


@pytest.mark.parametrize("arn", ["name", "arn:aws:batch:us-east-1:1:job-queue/nobody"])
def test_what_is_not_there_has_none(batch, arn):
    with pytest.raises(ApiError, match=r"is no ARN|does not exist"):
        Tagging(batch.jobs, batch.resources).operations["ListTagsForResource"]({"resourceArn": arn}, "us-east-1")
