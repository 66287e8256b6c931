import pytest

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
