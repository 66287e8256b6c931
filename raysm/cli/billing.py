"""What a job has cost, for the commands that show one: what flows in is a job, what flows out is its bill, or none."""

from raysm.client.costs.bill import Bill, bill_of
from raysm.client.job import Job

__all__ = ["bill_of_job"]


def bill_of_job(job: Job) -> Bill | None:
    """Return what a job and its follow-ups have cost; None on this machine, and until they have ended."""
    if not job.service.target.is_billed:
        return None
    return bill_of(job.chain.descriptions(), job.service.region)
