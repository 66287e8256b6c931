"""Which sessions there are, by the names of their users."""

import types
from datetime import UTC, datetime

import pytest

from raysm.client.session.finding import check_free, find, sessions
from raysm.contract.names import TASK_TAG, WORKLOAD_TAG
from raysm.errors import InvalidRequest, JobNotFound

CREATED = datetime(2026, 11, 1, tzinfo=UTC)


class Listing:
    """The part of a service that tells which jobs there are."""

    def __init__(self, *jobs):
        self.jobs, self.asked = jobs, []
        self.target = types.SimpleNamespace(describe=lambda: "on this machine")

    def summaries(self, api, *, contains=None, limit):
        for name, status, kind in self.jobs:
            if contains is None or contains in name:
                yield {
                    "TrainingJobName": name,
                    "TrainingJobArn": f"arn:{name}",
                    "TrainingJobStatus": status,
                    "CreationTime": CREATED,
                    "kind": kind,
                }

    def tags(self, arn):
        self.asked.append(arn)
        name, _, kind = next(job for job in self.jobs if arn == f"arn:{job[0]}")
        return {WORKLOAD_TAG: kind, TASK_TAG: name.rsplit("-", 3)[0]}


JOBS = (
    ("digits-20261101-120000-abcd1234", "InProgress", "session"),
    ("letters-20261101-120000-abcd1234", "InProgress", "session"),
    ("digits-20261031-120000-abcd1234", "Completed", "session"),
    ("digits-20261101-130000-abcd1234", "InProgress", "script"),
)


def test_a_session_is_an_active_job_whose_tags_say_so():
    found = list(sessions(Listing(*JOBS)))
    assert [(each.name, each.job) for each in found] == [
        ("digits", "digits-20261101-120000-abcd1234"),
        ("letters", "letters-20261101-120000-abcd1234"),
    ]
    assert found[0].created == CREATED


def test_of_one_name_only_its_jobs_are_asked_for_their_tags():
    listing = Listing(*JOBS)
    assert [each.name for each in sessions(listing, "letters")] == ["letters"]
    assert listing.asked == ["arn:letters-20261101-120000-abcd1234"]


def test_a_session_is_found_by_the_name_of_its_job_too():
    assert [each.name for each in sessions(Listing(*JOBS), "digits-20261101-120000-abcd1234")] == ["digits"]


def test_one_that_is_not_there_is_said_with_the_nearest_names():
    with pytest.raises(JobNotFound, match="no session 'digit' on this machine that runs; did you mean 'digits'"):
        find(Listing(*JOBS), "digit")
    with pytest.raises(JobNotFound, match="there are: digits, letters"):
        find(Listing(*JOBS), "xyz")
    with pytest.raises(JobNotFound, match="there are: none"):
        find(Listing(), "xyz")


def test_a_name_that_no_job_can_have_is_not_asked_for_and_the_nearest_are_told():
    class Strict(Listing):
        def summaries(self, api, *, contains=None, limit):
            assert contains in (None, "digits"), "AWS answers with a ValidationException"
            return super().summaries(api, contains=contains, limit=limit)

    with pytest.raises(JobNotFound, match="no session 'digits!' .* did you mean 'digits'"):
        find(Strict(*JOBS), "digits!")


def test_a_name_that_is_taken_is_refused_with_what_to_do():
    with pytest.raises(InvalidRequest, match="a session 'digits' already, the job digits-20261101.*attach"):
        check_free(Listing(*JOBS), "digits")
    check_free(Listing(*JOBS), "others")


LONG = "x" * 45
"""Of which the name of a job, with 63 characters, keeps 38."""


class Long(Listing):
    """Sessions whose jobs' names have the beginnings of theirs alone."""

    def __init__(self, *names):
        jobs = [(f"{name[:38]}-20261101-120000-{number:08x}", "InProgress", "session") for number, name in names]
        super().__init__(*jobs)
        self.names = {f"arn:{job[0]}": name for job, (_, name) in zip(jobs, names, strict=True)}

    def tags(self, arn):
        return super().tags(arn) | {TASK_TAG: self.names[arn]}


def test_a_session_is_found_by_a_name_that_is_too_long_for_that_of_its_job():
    listing = Long((1, LONG + "-a"), (2, LONG + "-b"))
    assert [(each.name, each.job[-1]) for each in sessions(listing, LONG + "-b")] == [(LONG + "-b", "2")]
    with pytest.raises(InvalidRequest, match="already, the job x+-20261101-120000-00000001"):
        check_free(listing, LONG + "-a")
    check_free(listing, LONG + "-c")


def test_a_session_of_a_long_name_is_found_by_that_of_its_job_alone():
    listing = Long((1, LONG + "-a"), (2, LONG + "-b"))
    for job, _, _ in listing.jobs:
        assert [each.job for each in sessions(listing, job)] == [job]
