"""One server for the tests of a module; nothing of it outlives them."""

import pytest

from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker_server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    running = Server(home, "--instance-kind", "process", "--cores", "4", "--stop-grace-s", "2")
    try:
        running.make_bucket()
        yield running
        running.end()
        assert "Traceback" not in running.log()
    finally:
        running.kill()
    assert_nothing_left(home, running.process.pid)
