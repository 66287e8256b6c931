"""The arguments of ``raysm jobs`` and ``raysm ui``."""

from typing import Any

from raysm.cli.job_arguments import NO_OPEN
from raysm.cli.options import add_reading
from raysm.cli.parser import Family, add, add_command


def add_jobs(commands: Any) -> None:
    jobs = add_command(
        commands,
        "jobs",
        "list the latest jobs",
        run="raysm.features.experiments.command:run",
        family=Family.JOBS,
        before="status",
        examples="""\
raysm jobs
# with parameters and metrics, the best first
raysm jobs --project digits --params lr,batch --metrics loss:min --sort loss:min""",
        overview=["raysm jobs; raysm logs -f NAME; raysm result NAME --output out/"],
    )
    add(jobs, "--contains TEXT", "only jobs with this text in their names")
    add(jobs, "--limit N", "maximum number of jobs (default 20)", type=int, default=20)
    add(jobs, "--project PROJECT", "only jobs of this project")
    add(jobs, "--task NAME", "only runs of this task")
    add(jobs, "--status STATUS", "only jobs with this status: Completed, or Failed,Stopped")
    add(
        jobs,
        "--since TIME",
        "only jobs submitted since a date or within an age: 2026-11-01, 7d, 12h, 1w",
    )
    add(jobs, "--grid NAME", "only the jobs of this grid, the latest of each row, in all regions")
    add(
        jobs,
        "--trials",
        "below each sweep list its trials, below each session its calls that report metrics",
    )
    text = (
        "show these parameters as columns: lr,batch; without names, those that differ between jobs"
    )
    add(jobs, "--params NAMES", text, nargs="?", const="*")
    text = (
        "show these metrics as columns: loss (its last value), loss:min, loss:max; without "
        "names, all"
    )
    add(jobs, "--metrics NAMES", text, nargs="?", const="*")
    # The help shows the equals sign, because argparse would take -auc for an option.
    add(jobs, "--sort COLUMN", "sort by lr, loss, cost_usd …; --sort=-auc puts the highest first")
    add_reading(jobs)


def add_ui(commands: Any) -> None:
    ui = add_command(
        commands,
        "ui",
        "compare all jobs, trials, sessions' calls and grid rows in the browser, with MLflow's "
        "pages",
        run="raysm.features.experiments.ui_command:run",
        family=Family.JOBS,
        before="stop",
    )
    add(ui, "--limit N", "maximum number of jobs (default 1000)", type=int, default=1000)
    add(ui, "--no-open", NO_OPEN)
    add_reading(ui)
