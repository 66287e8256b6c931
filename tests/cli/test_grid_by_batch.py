"""``raysm grid run --via batch``: from a command line to the job that is asked for; the rest needs a Batch."""

import contextlib

import pytest

from raysm.cli.arguments import parse
from raysm.cli.grid_by_batch import controller_of
from raysm.cli.main import main
from raysm.errors import InvalidRequest
from raysm.grid.batch_job.definition import ControllerJob

ROLE = "arn:aws:iam::123456789012:role/controllers"


def asked(*argv, **in_file):
    return controller_of(parse(["grid", "run", "train.py", *argv]), in_file)


def test_without_a_word_of_batch_this_process_runs_the_grid():
    assert asked() is None


def test_the_flags_are_the_job():
    assert asked("--via", "batch", "--job-queue", "team") == ControllerJob(job_queue="team")
    flags = ["--job-definition", "own", "--job-image", "raysm", "--job-role", ROLE, "--execution-role", ROLE]
    assert asked("--via", "batch", "--job-queue", "team", *flags) == ControllerJob(
        job_queue="team", job_definition="own", image="raysm", job_role=ROLE, execution_role=ROLE
    )
    public = asked("--via", "batch", "--job-queue", "team", *flags, "--assign-public-ip")
    assert public is not None
    assert public.assign_public_ip


def test_what_the_grids_file_says_holds_where_no_flag_says_another_and_batch_is_asked_for():
    assert asked("--via", "batch", "--job-queue", "own", job_queue="team", image="raysm") == ControllerJob(
        job_queue="own", image="raysm"
    )
    assert asked(job_queue="team") is None


def test_what_is_said_of_a_job_that_nobody_asked_for_is_refused():
    with pytest.raises(InvalidRequest, match="--job-queue is of a Batch job that runs the grid: add --via batch"):
        asked("--job-queue", "team")


def test_without_a_queue_nothing_is_asked_of_anybody(tmp_path, capsys):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "rows.csv").write_text("key\na\n")
    with contextlib.chdir(tmp_path):
        assert main(["grid", "run", "train.py", "--rows", "rows.csv", "--via", "batch"]) == 2
    assert "--via batch needs --job-queue" in capsys.readouterr().err


def test_elsewhere_than_on_batch_there_is_no_way():
    with pytest.raises(SystemExit):
        asked("--via", "lambda")
