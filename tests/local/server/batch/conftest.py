"""One server for the tests of Batch over boto3."""

import pytest

from tests.support.batch_queues import make_queue
from tests.support.sagemaker_server import serving


# Not of the package: pytest takes a folder without an __init__.py for none, and the fixture for the session's.
@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("home")) as running:
        make_queue(running.client("batch"))
        yield running


@pytest.fixture
def batch(server):
    return server.client("batch")
