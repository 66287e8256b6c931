"""What a grid names and no Batch job reaches: a planned grid flows in, an error flows out, or nothing."""

from collections.abc import Iterator

from raysm.errors import InvalidRequest
from raysm.grid.batch_job.definition import Definition
from raysm.grid.grid_request import GridRequest
from raysm.grid.planning import Planned
from raysm.grid.rows.databases import database_of, kept_name, variable_of
from raysm.grid.running import written_to
from raysm.request import Input

__all__ = ["check_database", "check_inputs"]


def check_inputs(grid: Planned) -> None:
    """Refuse paths of this machine: whoever prepares a job uploads them, and that is the controller.

    Raises:
        InvalidRequest: An input is one.
    """
    for where, uri in _inputs(grid):
        # What a template makes of a row's columns shows only with the row's job, whose refusal names it.
        if "://" not in uri and not uri.startswith(("job:", "{")):
            raise InvalidRequest(
                f"{where} is {uri!r}, a path of this machine, which no Batch job reaches: bring it to S3, and give its "
                "URI"
            )


def _inputs(grid: Planned) -> Iterator[tuple[str, str]]:
    shared = grid.request.template.options.get("inputs") or {}
    for channel, item in shared.items():
        yield f"the input {channel!r}", item.uri if isinstance(item, Input) else str(item)
    for task in grid.tasks:
        for channel, uri in task.addresses.items():
            yield f"row {task.position + 1} ({task.key}): its input {channel!r}", uri


def check_database(request: GridRequest, definition: Definition) -> None:
    """Refuse to write back to where the controller cannot: the rows themselves are read here, and once.

    Args:
        request: What is asked for.
        definition: Of the job that is to write.

    Raises:
        InvalidRequest: The database is this machine's, or the job has no way to find it.
    """
    if not request.rules.write_back:
        return
    on = written_to(request)
    if kept_name(on) is None:
        raise InvalidRequest(
            "what becomes of the rows cannot be written back by a Batch job to an open connection, or to an address "
            "with a password: name the database by env:NAME, or by the ARN of a secret"
        )
    # By what the name stands for here: a variable may hold the path of a file.
    database = database_of(on)
    if database.is_here:
        raise InvalidRequest(
            f"{database.name} is of this machine, where no Batch job can write back to it: leave --write-back "
            "(write_back) out, or name a database that a Batch job reaches"
        )
    variable = variable_of(on)
    if variable is not None and variable not in definition.variables:
        raise InvalidRequest(
            f"the database is what the variable {variable} says, which the job definition {definition.name!r} does not "
            "have: give it one, as a secret, or leave --write-back (write_back) out"
        )
