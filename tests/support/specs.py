"""Runs whole jobs that a JobSpec describes, to their end."""

from raysm.local.local_job import LocalJob
from tests.support.jobs import ENDS_S, Log


def run_spec(spec, root, kind="namespace", timeout_s=ENDS_S):
    """Return the job's outcome, its log and the folder of its result."""
    log = Log()
    root.mkdir(parents=True)
    with LocalJob(spec, root=root, kind=kind, on_line=log) as job:
        job.start()
        return job.wait(timeout_s=timeout_s), log, job.model_dir
