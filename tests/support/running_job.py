"""Fixtures: AWS, as far as a client can tell, and a job of two instances that runs until the test ends it."""

import pytest

from raysm.client.submit import submit
from raysm.request import Script
from tests.support.client_jobs import M5
from tests.support.sagemaker import fake_aws


@pytest.fixture
def remote():
    with fake_aws() as fake:
        yield fake


@pytest.fixture
def job(remote, tmp_path):
    (tmp_path / "train.py").touch()
    return submit(Script(str(tmp_path / "train.py")), cluster=M5, on=remote.service)
