import pytest

from raysm.client.submit import submit
from raysm.request import Script
from tests.support.client_jobs import M5
from tests.support.sagemaker import fake_aws, fake_local


@pytest.fixture
def remote():
    """AWS, as far as the client can tell."""
    with fake_aws() as fake:
        yield fake


@pytest.fixture
def local(tmp_path):
    """The embedded SageMaker, as far as the client can tell."""
    with fake_local(tmp_path / "home") as fake:
        yield fake


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("print('hello')\n")
    return path


@pytest.fixture
def job(remote, script):
    return submit(Script(str(script)), cluster=M5, on=remote.service)
