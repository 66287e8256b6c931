"""A session of this process with the test's own ``server``, which decides how long that one lives."""

import pytest

from tests.support.sessions import connected_session


@pytest.fixture
def session(server, tmp_path):
    with connected_session(tmp_path, server) as handle:
        yield handle
