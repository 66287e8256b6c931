"""One server for the tests of this folder; nothing of it outlives them."""

import pytest

from tests.support.sagemaker_server import serving


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("home")) as running:
        yield running
