"""Which queue the jobs of a grid go through: what a user writes, and the region that comes of it."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.queue_region import QueueRegion
from raysm.grid.queues import Queues, queues_of
from raysm.grid.service_region import ServiceRegion
from tests.support.sagemaker import fake_aws
from tests.support.scripted_batch import ScriptedBatch


@pytest.mark.parametrize(
    ("written", "names"),
    [
        (None, {}),
        ("team", {"": "team"}),
        (["team"], {"": "team"}),
        (["us-east-1=a", "eu-west-1=b", "rest"], {"us-east-1": "a", "eu-west-1": "b", "": "rest"}),
        ({"us-east-1": "a"}, {"us-east-1": "a"}),
        (["arn:aws:batch:us-east-1:1:job-queue/a"], {"": "arn:aws:batch:us-east-1:1:job-queue/a"}),
    ],
)
def test_a_queue_is_named_for_all_regions_or_for_each(written, names):
    assert queues_of(written) == Queues(names=names)


@pytest.mark.parametrize(
    ("written", "share", "words"),
    [
        (["a", "b"], None, "second queue for all regions"),
        (["us-east-1=a", "us-east-1=b"], None, "second queue for us-east-1"),
        (["north=a"], None, "the region 'north'"),
        (["us-east-1="], None, "by its name or ARN"),
        ({"us-east-1": 3}, None, "by its name or ARN"),
        (None, "research", "give it too"),
    ],
)
def test_what_names_no_queue_is_refused(written, share, words):
    with pytest.raises(InvalidRequest, match=words):
        queues_of(written, share)


def test_a_region_without_a_queue_is_reached_directly_and_one_with_a_queue_through_it():
    queues = queues_of(["us-east-1=training"])
    with fake_aws() as fake:
        fake.clients["batch"] = ScriptedBatch(fake.sagemaker)
        regions = [queues.open(region, fake.service, None, "g-") for region in ("us-east-1", "eu-west-1")]
    assert [type(region) for region in regions] == [QueueRegion, ServiceRegion]


@pytest.mark.parametrize(
    ("named", "share", "changes", "words"),
    [
        ("other", "", {}, "no such thing as the queue 'other' in eu-west-1"),
        ("training", "", {"state": "DISABLED"}, "is DISABLED"),
        ("training", "", {"serviceEnvironmentOrder": []}, "takes no training jobs"),
        ("training", "", {"schedulingPolicyArn": "arn:p"}, "name the share"),
        ("training", "research", {}, "has no shares"),
    ],
)
def test_a_queue_that_takes_none_of_the_jobs_is_refused_before_any_is_sent(named, share, changes, words):
    with fake_aws() as fake:
        fake.clients["batch"] = batch = ScriptedBatch(fake.sagemaker)
        batch.queue |= changes
        with pytest.raises(InvalidRequest, match=words):
            queues_of(named, share).open("us-east-1", fake.service, None, "g-")
