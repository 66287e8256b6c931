"""What this instance's own dashboard answers."""

import asyncio

import pytest

from raysm.bootstrap.dashboard_reader import MOST_BYTES, read_dashboard
from tests.support.dashboard_head import NODES, TOKEN, Answer, serving_head


@pytest.fixture
def head():
    with serving_head() as one:
        yield one


def read(head, key, token=TOKEN):
    return asyncio.run(read_dashboard(head.port, token, key))


def test_an_answer_is_read_with_the_jobs_token(head):
    assert read(head, "nodes?view=summary") == NODES


def test_a_wrong_token_is_told_by_the_status(head):
    with pytest.raises(OSError, match=r"answers api/version with 401"):
        read(head, "api/version", "wrong")


def test_what_is_not_there_is_an_error(head):
    with pytest.raises(OSError, match=r"answers nowhere with 404"):
        read(head, "nowhere")


def test_what_is_no_json_is_an_error(head):
    with pytest.raises(ValueError, match="Expecting value"):
        read(head, "")


def test_an_answer_without_bounds_is_not_kept(head):
    head.answers["long"] = Answer(b"x" * (MOST_BYTES + 1))
    with pytest.raises(OSError, match="too large"):
        read(head, "long")


def test_a_dashboard_that_is_away_is_an_error():
    with pytest.raises(OSError, match="onnect"):
        asyncio.run(read_dashboard(1, TOKEN, "api/version"))
