"""How a job ended, from the exits of its instances and the words that they left."""

import pytest

from raysm.contract.paths import Paths
from raysm.local.job_spec import JobSpec, number_hosts
from raysm.local.outcome import Exits


@pytest.fixture
def paths(tmp_path):
    def of(host):
        return Paths(tmp_path / host)

    return of


def ended(*codes, **fields):
    """Return exits of as many hosts, a second apart, the last host first."""
    spec = JobSpec(name="j", groups=number_hosts(("g", "local", len(codes))), command=("true",), **fields)
    exits = Exits(spec=spec)
    for number, code in reversed(list(enumerate(codes))):
        exits.add(spec.hosts[number], code, float(len(codes) - number))
    return exits


def outcome(exits, paths, stopped=False):
    return exits.outcome(paths, stopped=stopped, started_s=0.0, ended_s=9.0)


def leave(paths, host, text):
    paths(host).failure.parent.mkdir(parents=True)
    paths(host).failure.write_bytes(text)


def test_a_job_whose_instances_all_exit_with_0_is_completed(paths):
    found = outcome(ended(0, 0), paths)
    assert (found.status, found.failure_reason, found.exit_codes) == ("Completed", None, {"algo-2": 0, "algo-1": 0})
    assert found.exit_code == 0


def test_the_heads_words_come_before_those_of_who_failed_first(paths):
    leave(paths, "algo-2", b"mine")
    assert outcome(ended(1, 3), paths).failure_reason == "algo-2: mine"
    leave(paths, "algo-1", b"algo-2 lost\n")
    assert outcome(ended(1, 3), paths).failure_reason == "algo-2 lost"


def test_without_words_the_exit_of_who_failed_first_is_told(paths):
    found = outcome(ended(1, 137), paths)
    assert (found.failure_reason, found.exit_code) == ("algo-2: killed by SIGKILL", 137)
    assert "somebody sent it SIGTERM" in outcome(ended(143), paths).failure_reason


def test_words_in_any_encoding_are_cut_to_what_sagemaker_takes(paths):
    leave(paths, "algo-1", b"\xff" + b"x" * 2000)
    assert len(outcome(ended(1), paths).failure_reason) == 1024


def test_a_loss_that_is_allowed_fails_no_job_but_the_heads_does(paths):
    assert outcome(ended(0, 1, losses_allowed=True), paths).status == "Completed"
    assert outcome(ended(1, 0, losses_allowed=True), paths).status == "Failed"


def test_a_job_that_was_stopped_is_stopped_whatever_its_exits(paths):
    found = outcome(ended(1, 137), paths, stopped=True)
    assert (found.status, found.failure_reason) == ("Stopped", None)
