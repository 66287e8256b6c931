"""What people look at of a job, by methods of the job itself."""

import pytest

from raysm.client.job_views import JobViews
from raysm.errors import InvalidRequest


def test_a_job_has_the_views(job):
    assert isinstance(job, JobViews)


def test_the_dashboard_of_a_job_that_left_none_is_refused(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    with pytest.raises(InvalidRequest, match="left no dashboard"):
        job.dashboard()
