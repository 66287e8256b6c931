"""What a job cannot be asked for as it is: its record flows in, AWS's refusal flows out."""

from raysm.local.server.api_error import ApiError
from raysm.local.server.records import JobRecord

__all__ = ["check_interruption", "check_stop"]


def check_stop(record: JobRecord) -> None:
    """Refuse to stop a job that has ended.

    Raises:
        ApiError: It has.
    """
    if record.final:
        raise ApiError(
            "ValidationException",
            f"The request was rejected because the {record.kind} job is in status {record.status}.",
        )


def check_interruption(record: JobRecord, *, spot: bool, is_ending: bool = False) -> None:
    """Refuse to take the capacity of a job away that has none, or none that can be taken.

    Raises:
        ApiError: It does not run, or not on spot capacity.
    """
    if not spot:
        raise ApiError(
            "ValidationException",
            f"the job {record.name} cannot be interrupted: it does not run on spot capacity "
            "(EnableManagedSpotTraining); stop it instead",
            409,
        )
    if record.secondary != "Training" or is_ending:
        raise ApiError(
            "ValidationException",
            f"the job {record.name} cannot be interrupted now: it is in status {record.secondary}, not Training",
            409,
        )
