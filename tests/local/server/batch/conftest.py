"""One server for the tests of Batch over boto3."""

import pytest

from tests.support.batch_queues import make_queue, make_service_queue
from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker_server import Server


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    running = Server(home, "--instance-kind", "process", "--cores", "4", "--stop-grace-s", "2")
    try:
        running.make_bucket()
        make_queue(running.client("batch"))
        make_service_queue(running.client("batch"), capacity=3)
        yield running
        running.end()
        assert "Traceback" not in running.log()
    finally:
        running.kill()
    assert_nothing_left(home, running.process.pid)


@pytest.fixture
def batch(server):
    return server.client("batch")
