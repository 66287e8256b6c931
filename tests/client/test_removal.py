"""Which jobs of this machine are removed, and which must not be."""

import datetime

import pytest

from raysm.client.job.description import SecondaryStatus, Status
from raysm.client.job.handle import attach
from raysm.client.job.listing import Listed
from raysm.client.job.removal import check, chosen, descriptions, remove
from raysm.client.storage.places import shared_mark
from raysm.client.storage.s3 import Storage
from raysm.client.submit import prepare, submit
from raysm.contract.job_api import TRAINING
from raysm.errors import InvalidRequest
from raysm.request import Script
from tests.support.client_jobs import leave

NOW = datetime.datetime(2026, 1, 10, tzinfo=datetime.UTC)


def listed(name, *, days, status=Status.COMPLETED):
    """Return a job that ended ``days`` ago, or was made then where it has not ended."""
    time = NOW - datetime.timedelta(days=days)
    ended = time if status.is_terminal else None
    return Listed(
        name=name, api=TRAINING, status=status, secondary=SecondaryStatus.NONE, message="", created=time, ended=ended
    )


JOBS = [listed(str(days), days=days) for days in (3, 1, 2)] + [listed("runs", days=9, status=Status.IN_PROGRESS)]


@pytest.mark.parametrize(
    ("hours", "keep", "names"),
    [(None, 0, ["1", "2", "3"]), (None, 2, ["3"]), (None, 9, []), (25, 0, ["2", "3"]), (25, 2, ["3"])],
)
def test_those_that_ended_long_ago_go_but_the_latest(hours, keep, names):
    older_than = None if hours is None else datetime.timedelta(hours=hours)
    assert [job.name for job in chosen(JOBS, older_than=older_than, keep=keep, now=NOW)] == names


def test_a_job_of_aws_is_not_removed_and_one_is_told_how_to(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    with pytest.raises(InvalidRequest, match=rf"is on AWS.*aws s3 rm --recursive s3://.*{job.name}"):
        check(job, [])


def test_what_an_active_job_reads_stays_until_that_has_ended(local, script):
    first = submit(Script(str(script)), on=local.service)
    local.sagemaker.end(first.name, "Completed")
    check(first, descriptions(local.service))
    leave(local, first, "data/x", b"1")
    second = submit(Script(str(script)), on=local.service, inputs={"x": first.output("data")})
    with pytest.raises(InvalidRequest, match=f"{first.name} is an input of {second.name}, which is InProgress"):
        check(attach(first.name, local.service), descriptions(local.service))
    local.sagemaker.end(second.name, "Completed")
    check(first, descriptions(local.service))


def test_what_the_jobs_of_a_grid_share_goes_with_the_last_of_them(local, script):
    storage, names = Storage(local.service), ("row-1", "row-2")
    for name in names:
        prepare(Script(str(script)), on=local.service, job_name=name, shares=True).send()
        local.sagemaker.end(name, "Completed")
    shared = f"{local.service.places.root}/shared/"
    (prefix,) = {f"{shared}{item.name.partition('/')[0]}" for item in storage.below(shared) if "/" in item.name}
    remove(attach("row-1", local.service), descriptions(local.service))
    assert storage.size(shared_mark(prefix)) is not None
    remove(attach("row-2", local.service), descriptions(local.service))
    assert storage.below(shared) == []
