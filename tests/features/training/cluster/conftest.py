"""What all tests of this folder that train in several processes share: torch is imported once for their workers."""

import contextlib

import pytest

from tests.support.fork_server import fork_server
from tests.support.standing_ranks import StandingRanks


@pytest.fixture(scope="session")
def forks():
    """A process that has imported torch, from which the workers of a program are forked."""
    with fork_server() as server:
        yield server


@pytest.fixture(scope="module")
def ranks(forks, tmp_path_factory):
    """Ranks that stay for the tests of a file: of each group that gloo has formed a thread stays, which costs time."""
    with contextlib.closing(StandingRanks(forks, tmp_path_factory.mktemp("ranks"))) as standing:
        yield standing
