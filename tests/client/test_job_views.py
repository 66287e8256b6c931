"""What people look at of a job, by methods of the job itself."""

import pytest

from raysm.client.job.log import JobViews
from raysm.client.submit import submit
from raysm.errors import InvalidRequest
from raysm.request import Script
from raysm.testing import FakeSageMaker


def test_a_job_is_shown_by_rooms_above_the_client(tmp_path):
    (tmp_path / "train.py").touch()
    job = submit(Script(str(tmp_path / "train.py")), on=FakeSageMaker(tmp_path / "home"))
    assert isinstance(job, JobViews)
    assert job.plot().svg.startswith("<svg")
    with pytest.raises(InvalidRequest, match="draws a card in a notebook, and this is not a notebook"):
        job.watch()


def test_the_dashboard_of_a_job_that_left_none_is_refused(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    with pytest.raises(InvalidRequest, match="has ended"):
        job.dashboard()
