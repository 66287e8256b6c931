"""What is known of each trial, on the disk."""

import json

import raysm
from raysm.contract.events import Trial
from raysm.request.sweep import FunctionSweep
from raysm.workloads.sweep.journal import Journal, key_of


def trial(number, status="done"):
    return Trial(number=number, status=status, params={"lr": 0.1}, value=1.0, time_s=1.0)


def checkpoint(journal, name="/run/trial-1/checkpoint_000001", content="weights"):
    folder = journal.folder_of(name)
    folder.mkdir(parents=True)
    (folder / "model").write_text(content)
    return name


def test_what_is_written_is_known_to_whoever_opens_it_next(tmp_path):
    journal = Journal(tmp_path, "key")
    name = checkpoint(journal)
    journal.write(trial(2, "running"), name)
    journal.write(trial(1), traceback="in line 3")
    again = Journal(tmp_path, "key").entries()
    assert [(entry.trial, entry.checkpoint, entry.traceback) for entry in again] == [
        (trial(1), None, "in line 3"),
        (trial(2, "running"), name, ""),
    ]


def test_a_checkpoint_that_is_not_whole_is_not_gone_on_from(tmp_path):
    journal = Journal(tmp_path, "key")
    name = checkpoint(journal)
    journal.write(trial(0, "running"), name)
    (journal.folder_of(name) / "model").write_text("weig")
    (entry,) = Journal(tmp_path, "key").entries()
    assert (entry.trial, entry.checkpoint) == (trial(0, "running"), None)


def test_a_torn_entry_is_as_if_it_were_not_there(tmp_path):
    journal = Journal(tmp_path, "key")
    journal.write(trial(0))
    (file,) = tmp_path.rglob("*.json")
    file.write_text(file.read_text()[:-9])
    assert journal.entries() == []
    file.write_text(json.dumps({"trial": {"number": "0"}}))
    assert journal.entries() == []


def test_how_long_the_sweep_has_run_is_known_unless_it_is_torn(tmp_path):
    journal = Journal(tmp_path, "key")
    assert journal.spent_s() == 0.0
    journal.keep_spent(12.5)
    assert Journal(tmp_path, "key").spent_s() == 12.5
    (file,) = tmp_path.rglob("*.json")
    file.write_text(file.read_text()[:-3])
    assert journal.spent_s() == 0.0


def test_what_another_sweep_has_left_is_removed(tmp_path):
    Journal(tmp_path, "other").write(trial(0))
    assert Journal(tmp_path, "key").entries() == []
    assert not (tmp_path / "other").exists()


def test_nothing_is_left_once_it_is_removed(tmp_path):
    journal = Journal(tmp_path / "sweep", "key")
    name = checkpoint(journal)
    other = checkpoint(journal, "/run/trial-1/checkpoint_000002")
    journal.remove_checkpoint(name)
    assert [journal.folder_of(path).exists() for path in (name, other)] == [False, True]
    journal.remove_checkpoints(other)
    assert not journal.folder_of(other).exists()
    journal.remove()
    assert list(tmp_path.iterdir()) == []


def test_trials_belong_to_their_space_metric_and_function():
    def sweep(**fields):
        space = {"lr": raysm.uniform(0, 1)}
        return FunctionSweep(
            **{"name": "train", "python": "3.11", "space": space, "metric": "loss", "mode": "min"} | fields
        )

    assert key_of(sweep()) == key_of(sweep(trials=50, concurrency=2, stop="asha"))
    assert key_of(sweep()) != key_of(sweep(metric="accuracy", mode="min"))
    assert key_of(sweep()) != key_of(sweep(name="other"))
    assert key_of(sweep()) != key_of(sweep(space={"lr": raysm.uniform(0, 2)}))
