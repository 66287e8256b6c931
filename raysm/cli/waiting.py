"""What a person sees who asks for the result of a job that still runs: that it does, and how far it is."""

import time

from rich.console import Console

from raysm.cli.console import say_last
from raysm.cli.display import Display
from raysm.client.job.handle import Job
from raysm.client.logs.stream import JobStream
from raysm.contract import events
from raysm.errors import NotDone

__all__ = ["await_end"]


def await_end(job: Job, console: Console, timeout_s: float | None) -> None:
    """Wait until ``job`` has ended, and show its progress meanwhile. Ctrl-C ends the waiting, not the job.

    Args:
        job: One that has not ended.
        console: Where to; stdout is the result's.
        timeout_s: Seconds; 0 does not wait, None is without end.

    Raises:
        NotDone: It has not ended within ``timeout_s``.
    """
    still = f"{job.name} is still {job.status}"
    looks = f"raysm logs -f {job.name} shows what it writes"
    if timeout_s == 0:
        raise NotDone(f"{still}; {looks}, raysm result {job.name} waits for its result")
    # Not monotonic: it is compared with times that other machines wrote.
    begun_s = time.time()
    with Display(console) as display:
        display.say(f"{still}: waiting for its result; {looks}; Ctrl-C leaves the job alone")
        try:
            # Who waits for the result sends the follow-ups, as ``Job.wait`` does.
            for line in JobStream(job.chain, send=True).follow(timeout_s):
                match events.parse(line.text):
                    # What was before somebody asked is in the log; how far each phase is says all of it.
                    case events.State(time_s=time_s) if time_s < begun_s:
                        continue
                    case events.State() | events.Progress():
                        display.line(line.host, line.text)
        except KeyboardInterrupt:
            say_last(console, f"{job.name} goes on")
            raise
