"""What ``--json`` prints of a job: its handle flows in, JSON values flow out, under names that stay.

Apart from the commands about jobs: who sends one with ``--json`` needs this, and not all that they import.
"""

from typing import Any

from raysm.client.job.handle import Job

__all__ = ["described"]


def described(job: Job) -> dict[str, Any]:
    """Return what is known of a job as JSON values."""
    description, bill = job.describe(), job.cost()
    return {
        "name": description.name,
        "arn": description.arn,
        "status": str(description.status),
        "secondary_status": str(description.secondary),
        "message": description.message or None,
        "failure_reason": description.reason or None,
        "instances": [{"type": kind, "count": count} for kind, count in job.instances],
        "created": description.created.isoformat() if description.created else None,
        "started": description.started.isoformat() if description.started else None,
        "ended": description.ended.isoformat() if description.ended else None,
        "billable_s": description.billable_s,
        "training_s": description.training_s,
        "cost": None if bill is None else bill.as_dict(),
        "transitions": [
            {"status": status, "begin": begin.isoformat() if begin else None, "end": end.isoformat() if end else None}
            for status, begin, end in description.transitions
        ],
    }
