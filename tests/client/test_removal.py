"""Which jobs of this machine are removed, and which must not be."""

import pytest

from raysm.client.job.handle import attach
from raysm.client.job.removal import check, descriptions, remove
from raysm.client.storage.places import shared_mark
from raysm.client.storage.s3 import Storage
from raysm.client.submit import prepare
from raysm.errors import InvalidRequest
from raysm.request import Script


def test_a_job_of_aws_is_not_removed_and_one_is_told_how_to(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    with pytest.raises(InvalidRequest, match=rf"is on AWS.*aws s3 rm --recursive s3://.*{job.name}"):
        check(job, [])


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
