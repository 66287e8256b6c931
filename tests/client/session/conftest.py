"""A session of this process with the test's own ``server``, which decides how long that one lives."""

import pytest

import raysm
from tests.support.sessions import StubJob


@pytest.fixture
def session(server, tmp_path):
    handle = raysm.Session(name="digits")
    handle._connect(StubJob(tmp_path, server.port), lambda event: None)
    yield handle
    handle.detach()
