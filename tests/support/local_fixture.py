import pytest

from tests.support.sagemaker import fake_local


@pytest.fixture
def local(tmp_path):
    """The embedded SageMaker, as far as the client can tell."""
    with fake_local(tmp_path / "home") as fake:
        yield fake
