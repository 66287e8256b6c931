"""Jobs that hang: the log and ``raysm status`` name who waits where, and the request decides what follows."""

import sys

import pytest

import raysm
from raysm.cli import main as cli
from raysm.core.client.logs.stalls import find_stall
from raysm.core.protocol.events import State, parse
from raysm.errors import JobFailed
from tests.hangs.__main__ import find_cases, run
from tests.support.waiting import until

pytestmark = [
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and memfd"),
]

LEFT_THE_LOOP = """\
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
if dist.get_rank() == 1:
    time.sleep(3600)  # rank 1 stays here
dist.barrier()
"""
HANGS_ONCE = """\
import os
import pathlib
import time

attempts = pathlib.Path(os.environ["RAYSM_STATE"]) / "attempts"
number = len(attempts.read_text()) if attempts.exists() else 0
attempts.write_text("x" * (number + 1))
if number == 0:
    time.sleep(3600)
print("attempt", number)
"""


@pytest.fixture
def submit(tmp_path):
    jobs = []

    def submit(code, kind, count=1, stall_s=10, **limits):
        script = tmp_path / "hang.py"
        script.write_text(code)
        job = raysm.submit(
            kind(str(script)),
            cluster=raysm.Cluster(count=count),
            limits=raysm.Limits(stall_s=stall_s, **limits),
        )
        jobs.append(job)
        return job

    yield submit
    for job in jobs:
        job.stop()


def states_of(job):
    events = map(parse, (line.text for line in job.lines()))
    return [event for event in events if isinstance(event, State)]


def test_rank_that_left_the_loop_is_named_in_the_log_and_by_the_status(submit, capsys):
    job = submit(LEFT_THE_LOOP, raysm.TorchScript, count=2)
    # On a machine without a free core, the imports before may look like a stall.
    until(lambda: "rank 0 waits in barrier (hang.py:10)" in find_stall(job.chain))
    sentence = find_stall(job.chain)
    assert "rank 1 is in `time.sleep(3600)  # rank 1 stays here` (hang.py:9)" in sentence
    assert sentence in [state.detail for state in states_of(job) if state.name == "stalled"]
    assert not job.done()
    capsys.readouterr()
    assert cli.main(["status", job.name]) == 0
    assert f"has stalled: {sentence}" in capsys.readouterr().out
    differ = "collectives of default_pg: rank 0 called 2, barrier; rank 1 called only 1, all_reduce [2] Float"
    until(lambda: any(differ in line.text for line in job.lines()))


def test_stall_is_the_reason_of_a_job_that_it_fails(submit):
    job = submit("import time\ntime.sleep(3600)\n", raysm.Script, stall_s=20, on_stall="fail")
    with pytest.raises(JobFailed, match=r"no line and no work for .*time\.sleep\(3600\).*hang\.py"):
        job.result()


def test_job_that_hangs_once_is_started_again_with_its_state(submit):
    job = submit(HANGS_ONCE, raysm.Script, stall_s=20, on_stall="restart", max_restarts=1)
    job.wait(timeout=300)
    assert str(job.status) == "Completed"
    assert any("attempt 1" in line.text for line in job.lines())


CASES = {case.name: case for case in find_cases()}


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    [
        ["tasks.actors_in_a_cycle", "tasks.coroutine_of_an_actor", "tasks.stopped_actor"],
        ["slow_tasks.large_objects"],
    ],
    ids=lambda names: names[0],
)
def test_programs_of_the_corpus_are_judged_right(names):
    outcomes = [*run([CASES[name] for name in names], stall_s=10)]
    assert [outcome.name for outcome in outcomes if outcome.is_right] == names, outcomes


def test_every_program_that_hangs_marks_the_line_to_blame():
    unmarked = [name for name, case in CASES.items() if case.hangs and not case.is_marked]
    assert not unmarked
