"""The server's own paths."""

import pytest

from raysm.local.server.console import Console
from raysm.local.server.cores import Cores
from raysm.local.server.validation import ApiError


class Jobs:
    """What the console asks of the operations."""

    def __init__(self):
        self.asked = []

    def running(self):
        return ["a-job", "one-that-is-tidied-up-after"]

    def unfinished(self):
        return ["a-job"]

    def run(self, name, region=None):
        self.asked.append((name, region))
        return self

    def interrupt(self):
        self.asked.append("interrupted")

    def await_end(self, name, region, seconds):
        self.asked.append((name, region, seconds))
        return True

    def await_change(self, name, region, seen, seconds):
        self.asked.append((name, region, seen, seconds))
        return 4


@pytest.fixture
def jobs():
    return Jobs()


@pytest.fixture
def ended():
    return []


@pytest.fixture
def console(jobs, ended):
    return Console(jobs, Cores(3), started_s=1.0, shut_down=lambda: ended.append(1))


def test_the_status_says_which_jobs_have_not_ended_and_how_many_cores_there_are(console):
    status = console.answer("GET", "/raysm/status")
    assert (status["running"], status["cores"], status["started_s"]) == (["a-job"], 3, 1.0)


def test_a_server_that_is_told_to_end_is_asked_to_once(console, ended):
    assert console.answer("POST", "/raysm/shutdown") == {"ending": True}
    assert ended == [1]


def test_a_job_is_interrupted_by_its_name_and_where_that_is_not_enough_by_its_region(console, jobs):
    assert console.answer("POST", "/raysm/jobs/a-job/interrupt") == {"interrupted": "a-job"}
    assert console.answer("POST", "/raysm/jobs/eu-west-1/a-job/interrupt") == {"interrupted": "a-job"}
    assert jobs.asked == [("a-job", None), "interrupted", ("a-job", "eu-west-1"), "interrupted"]


def test_a_job_is_waited_for_in_its_region(console, jobs):
    assert console.answer("GET", "/raysm/jobs/eu-west-1/a-job/end/20") == {"ended": True}
    assert jobs.asked == [("a-job", "eu-west-1", 20.0)]


def test_word_of_the_next_line_is_waited_for_by_how_many_there_were(console, jobs):
    assert console.answer("GET", "/raysm/jobs/eu-west-1/a-job/change/3/20") == {"changes": 4}
    assert jobs.asked == [("a-job", "eu-west-1", 3, 20.0)]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/raysm/shutdown"),
        ("POST", "/raysm/status"),
        ("GET", "/raysm/jobs/a-job/interrupt"),
        ("GET", "/raysm/jobs/eu-west-1/a-job/end/600"),
        ("GET", "/raysm/jobs/a-job/end/20"),
        ("GET", "/raysm/jobs/eu-west-1/a-job/change/20"),
        ("POST", "/raysm/jobs/../interrupt"),
    ],
)
def test_everything_else_is_unknown_and_does_nothing(console, jobs, ended, method, path):
    with pytest.raises(ApiError, match="none of the server's own operations") as caught:
        console.answer(method, path)
    assert caught.value.status == 404
    assert (jobs.asked, ended) == ([], [])
