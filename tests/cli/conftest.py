import pytest

from raysm.client.submit import submit
from raysm.request import Cluster, Script
from tests.support.sagemaker import fake_aws


@pytest.fixture
def remote():
    with fake_aws() as fake:
        yield fake


@pytest.fixture
def job(remote, tmp_path):
    (tmp_path / "train.py").touch()
    return submit(Script(str(tmp_path / "train.py")), cluster=Cluster("ml.m5.large", count=2), on=remote.service)
