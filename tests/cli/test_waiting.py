"""Who asks for the result of a job that still runs is told so, and sees how far it is."""

import io

import pytest
from rich.console import Console

from raysm.cli.waiting import await_end
from raysm.contract import events
from tests.support.commands import NOW_MS, tell


class Written(io.StringIO):
    """Remembers what was written, and calls when a certain text has been."""

    def __init__(self, calls):
        super().__init__()
        self._calls = calls

    def write(self, text):
        for awaited in [key for key in self._calls if key in text]:
            self._calls.pop(awaited)()
        return super().write(text)


def test_whoever_waits_for_a_result_is_told_so_and_sees_how_far_it_is(remote, job):
    tell(remote, job, events.State(name="joined", host="algo-2", count=2, total=2, time_s=1.0))
    remote.write_log(job.name, "algo-1", [(NOW_MS + 5, "a line of the script")])
    done = events.Progress(phase="similarity", done=4, total=4, unit="rows")
    out = Written(
        {
            "waiting for its result": lambda: tell(remote, job, done),
            "similarity: 100%": lambda: remote.sagemaker.end(job.name, "Completed"),
        }
    )
    await_end(job, Console(file=out, width=80), timeout_s=60.0)
    assert out.getvalue().splitlines() == [
        f"{job.name} is still InProgress: waiting for its result; raysm logs -f {job.name} shows what it writes; "
        "Ctrl-C leaves the job alone",
        "similarity: 100% (4 of 4 rows)",
    ]


def test_ctrl_c_ends_the_waiting_and_leaves_the_job_alone(remote, job):
    def interrupt():
        raise KeyboardInterrupt

    tell(remote, job, events.Progress(phase="similarity", done=4, total=4, unit="rows"))
    out = Written({"similarity": interrupt})
    with pytest.raises(KeyboardInterrupt):
        await_end(job, Console(file=out, width=80), timeout_s=60.0)
    assert out.getvalue().splitlines()[-1] == f"{job.name} goes on"
    assert remote.sagemaker.stopped == []
