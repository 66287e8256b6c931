"""The fixtures ``raysm_local`` and ``raysm_job``.

pytest imports this module in every run, by the entry point ``raysm`` of the group ``pytest11``.
That imports little: the names of raysm are imported when they are used.
"""

import io
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

import raysm

SHOWN_LINES = 40
"""Last lines of a job's log in the report of a test that fails."""

JOBS = pytest.StashKey[list["raysm.Job"]]()


@pytest.fixture(scope="session")
def raysm_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator["raysm.Local"]:
    """The target of an embedded SageMaker with a home of its own.

    It starts with the first job, and ends, with all jobs, after the last test. Until then
    ``RAYSM_HOME`` names its home, so that raysm uses it without ``on=`` and in commands, too.
    """
    home = tmp_path_factory.mktemp("raysm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYSM_HOME", str(home))
        yield raysm.Local(home=str(home))
        command = [sys.executable, "-m", "raysm", "local", "down", "--force"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def raysm_job(
    raysm_local: "raysm.Local", request: pytest.FixtureRequest
) -> Iterator[Callable[..., "raysm.Job"]]:
    """A function like ``raysm.submit`` that sends jobs to ``raysm_local``.

    If the test fails, its report has the state and the last lines of each of them. Jobs that still
    run when the test ends are stopped.
    """
    jobs: list[raysm.Job] = []
    request.node.stash[JOBS] = jobs

    def submit(workload: Any, **options: Any) -> "raysm.Job":
        jobs.append(raysm.submit(workload, on=raysm_local, **options))
        return jobs[-1]

    yield submit
    for job in jobs:
        if not job.done():
            job.cancel()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.when == "call":
        for job in item.stash.get(JOBS, []):
            report.sections.append((f"job {job.name}", _describe(job)))
    return report


def _describe(job: "raysm.Job") -> str:
    log = io.StringIO()
    try:
        described = job.describe()
        job.logs(tail=SHOWN_LINES, to=log)
    except raysm.RaysmError as error:
        return f"nothing is known of it: {error}"
    state = described.status.value + (f": {described.reason}" if described.reason else "")
    return f"{state}\n{log.getvalue()}"
