import pytest

from tests.support import aws_account


@pytest.fixture
def account():
    """An account in which one instance can run a job."""
    with aws_account.account() as made:
        yield made
