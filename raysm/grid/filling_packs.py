"""From rows that share a job to that job: the request that all rows share flows in, with its rows; one job flows out.

What is the same in all rows is the job's, and what differs goes with each row: its arguments, its hyperparameters, its
environment. All else a job has once, its channels first of all: where that would have to differ, the plan refuses it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raysm.errors import InvalidRequest
from raysm.grid.filling import GIVEN, Filled, Template
from raysm.grid.place import Place
from raysm.grid.rows.template import names_in
from raysm.grid.rules import Rules
from raysm.grid.task import MAX_RUNTIME_S, Task
from raysm.request.job import hyperparameter_arguments, hyperparameter_text
from raysm.request.pack import Pack, PackedRow
from raysm.request.workload import EntryScript

__all__ = ["check_packs", "packed_job"]

AS_ARGS = "hyperparameters_as_args"
"""The option that gives a script its hyperparameters as arguments."""

OWN = ("hyperparameters", "environment")
"""Options that each row of a pack has of its own."""

COMMON = frozenset(GIVEN) - {"key"}
"""What templates may take anywhere: it is the same for all rows of a job."""


def packed_job(
    template: Template, task: Task, place: Place, count: int, rules: Rules, account: Callable[[], str] = lambda: ""
) -> Filled:
    """Return the job of rows that share it, in a place.

    Args:
        template: The request that the grid's rows share.
        task: What stands for them (``raysm.grid.packing.together``).
        place: Where it runs.
        count: Instances of its cluster.
        rules: Of the grid.
        account: Returns the number of the account.

    Raises:
        InvalidRequest: A row cannot be; the message names it.
    """
    jobs = [template.job(row, place, count, account) for row in task.rows]
    scripts = [_script(job) for job in jobs]
    common = {name: _common([job.options.get(name, {}) for job in jobs]) for name in OWN}
    rows = tuple(
        PackedRow(
            key=row.key,
            name=row.key_hash,
            args=_arguments(job, script),
            max_runtime_s=row.max_runtime_s or MAX_RUNTIME_S,
            **{name: _rest(job.options.get(name, {}), common[name]) for name in OWN},
        )
        for row, job, script in zip(task.rows, jobs, scripts, strict=True)
    )
    # The plan has refused templates in them: of all rows the script and its folder are the same.
    first = scripts[0]
    pack = Pack(first.script, source_dir=first.source_dir, rows=rows, cpus=rules.row_cpus, gpus=rules.row_gpus)
    options = {**jobs[0].options, **common}
    options.pop(AS_ARGS, None)  # each row's stand in its own arguments
    return Filled(
        workload=pack,
        target=jobs[0].target,
        options={name: value for name, value in options.items() if value not in (None, {}, ())},
    )


def check_packs(template: Template, tasks: Sequence[Task], rules: Rules) -> None:
    """Refuse rows that are to share jobs, and cannot.

    Raises:
        InvalidRequest: What they cannot share, and what to do.
    """
    if not rules.packs:
        return
    if not template.workload.is_one_program:
        raise InvalidRequest(
            "rows that share a job (Rules(pack=…)) are programs of one process, and this is none: "
            f"{template.workload.label}; take a plain script without ray_init and in_state, or a job for each row"
        )
    # How each row ends stands in a file of the job, and nobody would write it: all of them would fail.
    if not template.target.runs_programs:
        raise InvalidRequest(
            "rows that share a job (Rules(pack=…)) are told of by the program that runs them, and these instances run "
            "none; take another kind of instance, or a job for each row"
        )
    entry = template.workload.entry_script
    fixed = {name: value for name, value in template.options.items() if name not in OWN}
    parts = [fixed, getattr(template.target, "image", None), *([entry.script, entry.source_dir] if entry else ())]
    # The first one will do: whoever corrects it looks for others of the kind.
    for name in sorted(names_in(parts) - COMMON):
        raise InvalidRequest(
            f"{{{name}}} stands in an option that a job has once (its inputs, say), and rows that share a job "
            "(Rules(pack=…)) may differ in arguments, hyperparameters and environment alone: give the program the "
            f"address as an argument, --data {{{name}}}, or drop pack"
        )
    for task in tasks:
        _check_row(task, rules)


def _check_row(task: Task, rules: Rules) -> None:
    where = f"row {task.position + 1} ({task.key})"
    if task.checkpoint is not None:
        raise InvalidRequest(
            f"{where}, column 'checkpoint': rows that share a job have their checkpoints in a folder of it each; drop "
            "the column, or pack"
        )
    # A guess would fill a job with days of work: how long a row takes is known to nobody else.
    if rules.pack_minutes is not None and task.expected_s is None:
        raise InvalidRequest(
            f"{where}: pack_minutes counts how long rows take, and the column expected_s of this one is empty; fill "
            "it, or say how many rows share a job: pack=20"
        )


def _arguments(job: Filled, script: EntryScript) -> tuple[str, ...]:
    if not job.options.get(AS_ARGS):
        return script.args
    texts = {name: hyperparameter_text(name, item) for name, item in job.options.get("hyperparameters", {}).items()}
    return (*hyperparameter_arguments(texts), *script.args)


def _script(job: Filled) -> EntryScript:
    entry = job.workload.entry_script
    assert entry is not None, "the plan has refused what is no script"
    return entry


def _common(texts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all of these say alike."""
    # Told once: CreateTrainingJob's call and the payload stay as small as those of one row.
    first = texts[0]
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in texts)}


def _rest(options: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in common}
