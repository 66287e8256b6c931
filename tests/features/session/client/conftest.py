"""A session of this process with a server that the tests of one file share."""

import pytest

from tests.support.sessions import connected_session, served


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("session")) as running:
        yield running


@pytest.fixture
def session(server, tmp_path):
    with connected_session(tmp_path, server) as handle:
        yield handle
