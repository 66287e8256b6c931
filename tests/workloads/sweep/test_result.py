"""The files and the summary of a sweep's result."""

import pyarrow.parquet as pq
import pytest

import raysm
from raysm.contract.events import BEST, TABLE, TRIALS, Trial, Trials
from raysm.request.sweep import ScriptSweep
from raysm.workloads.sweep.run import Outcome
from raysm.workloads.sweep.runner import summary_of, write_result
from raysm.workloads.sweep.study import Entry

TRIALS_OF_IT = [
    Trial(number=0, status="done", value=2.0, params={"lr": 0.1, "kind": "a"}, metrics={"loss": 2.0}),
    Trial(number=1, status="failed", params={"lr": 0.2, "kind": 7}, reason="ValueError: no"),
    Trial(number=2, status="stopped", value=1.5, params={"lr": 0.3, "kind": "b"}, metrics={"loss": 1.5, "rows": 3.0}),
]


def workload(**fields):
    return ScriptSweep(
        **{"script": "train.py", "space": {"lr": raysm.uniform(0, 1)}, "metric": "loss", "mode": "min"} | fields
    )


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files" / "2" / "checkpoint"
    folder.mkdir(parents=True)
    (folder / "model").write_text("weights")
    return tmp_path / "files"


def outcome(**fields):
    entries = [Entry(trial=trial) for trial in TRIALS_OF_IT[:2]]
    entries.append(Entry(trial=TRIALS_OF_IT[2], checkpoint="2/checkpoint"))
    return Outcome(**{"entries": tuple(entries), "notes": ("short",), "seconds": 1.0, "resumed": 0} | fields)


def test_the_result_is_the_table_in_two_formats_and_the_best_trials_files(files, tmp_path):
    described = write_result(outcome(), workload(), files, tmp_path / "model")
    assert [(file.name, file.shape) for file in described] == [(TABLE, (3,)), (TRIALS, (3,))]
    trials = Trials.read(tmp_path / "model")
    assert (trials.best, trials.notes, list(trials.trials)) == (2, ("short",), TRIALS_OF_IT)
    assert (tmp_path / "model" / BEST / "model").read_text() == "weights"
    table = pq.read_table(tmp_path / "model" / TABLE)
    assert table.column("params.lr").to_pylist() == [0.1, 0.2, 0.3]
    assert table.column("metrics.rows").to_pylist() == [None, None, 3.0]


def test_the_summary_names_the_best_the_direction_and_the_failures():
    assert summary_of(outcome(), workload()) == (
        "best of 3 trials (1 done, 1 ended early, 1 failed; lowest loss): loss = 1.5 with lr = 0.3, kind = b (trial 2)"
        ". 1 of 3 trials failed, trial 1 with: ValueError: no"
    )
    assert "highest loss): loss = 2 with" in summary_of(outcome(), workload(mode="max"))
    part = summary_of(outcome(), workload(space={"n": raysm.randint(1, 4)}, search="grid"))
    assert part.startswith("best of 3 trials, 3 of 4 combinations (1 done, ")
    assert summary_of(outcome(entries=(Entry(trial=TRIALS_OF_IT[1]),)), workload()) == "1 trial: 1 failed"
