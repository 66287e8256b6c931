"""A job that the commands are asked about."""

from tests.support.running_job import job, remote

__all__ = ["job", "remote"]
