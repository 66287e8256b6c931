"""What the trials do is written down as it happens, and an end without hope is seen."""

from types import SimpleNamespace

import raysm
from raysm.contract.events import Metric, Progress, Trial, best_of
from raysm.request.sweep import ScriptSweep
from raysm.workloads.sweep.chronicle import Chronicle, Gate
from raysm.workloads.sweep.journal import Journal
from raysm.workloads.sweep.schedulers import NOT_FINITE, REPORTS, VALUE
from raysm.workloads.sweep.search import Search, Searching, Waiting
from raysm.workloads.sweep.trial import ENDED, METRICS


class Stage:
    """A chronicle, and Ray Tune's calls of it."""

    def __init__(self, folder, **fields):
        fields = {
            "script": "train.py",
            "space": {"x": raysm.uniform(0, 1)},
            "metric": "loss",
            "mode": "min",
            "trials": 4,
        } | fields
        self.workload = ScriptSweep(**fields)
        self.journal, self.told = Journal(folder, "key"), []
        earlier = self.journal.entries()
        waiting = [
            Waiting(
                params=entry.trial.params,
                number=entry.trial.number,
                restored=entry.checkpoint,
                reports=entry.trial.reports if entry.checkpoint else 0,
            )
            for entry in earlier
        ]
        self.search = Search.begin(self.workload, None, [], waiting)
        self.searching = Searching(self.search)
        self.chronicle = Chronicle(
            self.workload,
            search=self.search,
            searching=self.searching,
            journal=self.journal,
            emit_event=self.told.append,
            earlier=earlier,
        )

    def start(self, name):
        config = self.searching.suggest(name)
        trial = SimpleNamespace(trial_id=name, config=config, checkpoint=None, get_error=lambda: None, count=0)
        self.chronicle.on_trial_start(0, [], trial)
        return trial

    def report(self, trial, value):
        trial.count += 1
        result = {METRICS: {"loss": value}, VALUE: value, "host": "algo-2", REPORTS: trial.count}
        self.chronicle.on_trial_result(0, [], trial, result)

    def diverge(self, trial):
        trial.count += 1
        self.chronicle.on_trial_result(0, [], trial, {METRICS: {}, NOT_FINITE: True, REPORTS: trial.count})

    def end(self, trial, **how):
        if how:
            self.chronicle.on_trial_result(0, [], trial, {METRICS: how.pop("metrics", {}), **how})
        self.chronicle.on_trial_complete(0, [], trial)

    def save(self, trial, name, trials=()):
        folder = self.journal.folder_of(name)
        folder.mkdir(parents=True)
        (folder / "model").write_text(name)
        self.tell_checkpoint(trial, name, trials)

    def tell_checkpoint(self, trial, name, trials=()):
        self.chronicle.on_checkpoint(0, trials, trial, SimpleNamespace(path=name))

    def trials(self):
        return [event for event in self.told if isinstance(event, Trial)]


def test_a_trial_is_told_as_it_begins_and_as_it_ends(tmp_path):
    stage = Stage(tmp_path)
    one = stage.start("a")
    stage.report(one, 3.0)
    stage.report(one, 2.0)
    stage.end(one, metrics={"loss": 2.0, "rows": 7.0}, **{ENDED: "done"})
    begun, done = stage.trials()
    assert (begun.status, begun.params) == ("running", one.config["params"])
    assert (done.status, done.value, done.reports, done.host) == ("done", 2.0, 2, "algo-2")
    assert done.metrics == {"loss": 2.0, "rows": 7.0}
    assert [event.value for event in stage.told if isinstance(event, Metric)] == [2.0]
    assert [(event.done, event.total) for event in stage.told if isinstance(event, Progress)] == [(0, 4), (1, 4)]
    assert stage.search.study.best_value == 2.0


def test_a_trial_that_did_not_tell_its_end_was_ended_early(tmp_path):
    stage = Stage(tmp_path)
    one = stage.start("a")
    stage.report(one, 3.0)
    stage.end(one)
    assert (stage.trials()[-1].status, stage.trials()[-1].value) == ("stopped", 3.0)


def test_a_failed_trial_keeps_its_reason_and_its_traceback(tmp_path):
    stage = Stage(tmp_path)
    stage.end(stage.start("a"), reason="ValueError: no", traceback="in line 3", **{ENDED: "failed"})
    assert stage.trials()[-1].reason == "ValueError: no"
    assert stage.chronicle.entries[0].traceback == "in line 3"
    two = stage.start("b")
    stage.chronicle.on_trial_error(0, [], two)
    assert stage.trials()[-1].reason == "its process or its instance died, 4 times"


def test_without_the_metric_a_trial_fails_and_where_none_has_it_the_sweep_ends(tmp_path):
    stage = Stage(tmp_path)
    gate = Gate(stage.chronicle)
    assert not gate.stop_all()
    stage.end(stage.start("a"), metrics={"accuracy": 1.0}, **{ENDED: "done"})
    assert stage.trials()[-1].reason.startswith("it did not report the metric 'loss'; it reported 'a")
    assert gate.stop_all()
    assert not gate("a", {})
    assert "the first that ended reported 'accuracy'" in str(stage.chronicle.refusal)


def test_where_another_trial_has_the_metric_the_sweep_goes_on(tmp_path):
    stage = Stage(tmp_path)
    one = stage.start("a")
    stage.report(one, 1.0)
    stage.end(one, **{ENDED: "done"})
    stage.end(stage.start("b"), metrics={"accuracy": 1.0}, **{ENDED: "done"})
    assert stage.trials()[-1].status == "failed"
    assert stage.chronicle.refusal is None


def test_a_trial_whose_metric_became_nan_has_failed_however_good_it_was_before(tmp_path):
    stage = Stage(tmp_path)
    diverged, good = stage.start("a"), stage.start("b")
    stage.report(diverged, 0.1)
    stage.diverge(diverged)
    stage.end(diverged, **{ENDED: "done"})
    assert (stage.trials()[-1].status, stage.trials()[-1].value) == ("failed", None)
    assert stage.trials()[-1].reason == "the metric 'loss' was not finite when it was reported last"
    stage.report(good, 0.5)
    stage.end(good, **{ENDED: "done"})
    assert best_of(stage.chronicle.ended_trials, "min").number == 1


def test_a_trial_that_is_ended_early_because_its_metric_is_nan_has_failed(tmp_path):
    stage = Stage(tmp_path)
    trial = stage.start("a")
    stage.report(trial, 0.1)
    stage.diverge(trial)
    stage.end(trial)
    assert (stage.trials()[-1].status, stage.trials()[-1].value) == ("failed", None)
    assert stage.trials()[-1].reason == "the metric 'loss' was not finite when it was reported last"


def test_a_report_that_is_repeated_after_a_death_counts_once(tmp_path):
    stage = Stage(tmp_path)
    trial = stage.start("a")
    for value in (4.0, 3.0, 2.0):
        stage.report(trial, value)
    # Its process has died, and goes on from the checkpoint of the first report.
    trial.count = 1
    stage.report(trial, 3.0)
    stage.end(trial, **{ENDED: "done"})
    assert stage.trials()[-1].reports == 2


def test_a_sweep_whose_first_trial_diverges_goes_on(tmp_path):
    stage = Stage(tmp_path)
    trial = stage.start("a")
    stage.diverge(trial)
    stage.end(trial, **{ENDED: "done"})
    assert stage.trials()[-1].status == "failed"
    # The metric has the right name: the others may have it as a number.
    assert stage.chronicle.refusal is None


def test_of_checkpoints_only_the_best_trials_stays(tmp_path):
    stage = Stage(tmp_path)
    for name, value in (("a", 2.0), ("b", 1.0), ("c", 3.0)):
        trial = stage.start(name)
        stage.report(trial, value)
        stage.save(trial, f"/run/{name}/checkpoint_0")
        stage.end(trial, **{ENDED: "done"})
    left = {path.parent.parent.name for path in tmp_path.rglob("model")}
    assert left == {"b"}
    assert [entry.checkpoint for entry in Journal(tmp_path, "key").entries()] == [None, "/run/b/checkpoint_0", None]


def test_of_a_running_trial_the_latest_checkpoints_stay(tmp_path):
    stage = Stage(tmp_path)
    trial = stage.start("a")
    for number in range(4):
        stage.report(trial, 1.0)
        stage.save(trial, f"/run/a/checkpoint_{number}")
    assert sorted(path.parent.name for path in tmp_path.rglob("model")) == ["checkpoint_2", "checkpoint_3"]
    (entry,) = Journal(tmp_path, "key").entries()
    assert entry.checkpoint == "/run/a/checkpoint_3"


def test_a_checkpoint_that_is_told_again_counts_once(tmp_path):
    stage = Stage(tmp_path)
    trial = stage.start("a")
    for number in range(2):
        stage.report(trial, 1.0)
        stage.save(trial, f"/run/a/checkpoint_{number}")
        stage.tell_checkpoint(trial, f"/run/a/checkpoint_{number}")
    assert sorted(path.parent.name for path in tmp_path.rglob("model")) == ["checkpoint_0", "checkpoint_1"]


def test_in_a_population_the_checkpoint_that_another_trial_goes_on_from_stays(tmp_path):
    stage = Stage(tmp_path, stop="pbt")
    best, worst = stage.start("a"), stage.start("b")
    # Tune has given it to the other one, which has no room to run yet.
    worst.checkpoint = SimpleNamespace(path="/run/a/checkpoint_0")
    for number in range(6):
        stage.report(best, 1.0)
        stage.save(best, f"/run/a/checkpoint_{number}", [best, worst])
    assert {path.parent.name[-1] for path in tmp_path.rglob("model")} == {"0", "3", "4", "5"}
    # Now it has made one of its own.
    worst.checkpoint = SimpleNamespace(path="/run/b/checkpoint_0")
    stage.save(best, "/run/a/checkpoint_6", [best, worst])
    assert {path.parent.name[-1] for path in tmp_path.rglob("model")} == {"4", "5", "6"}


def test_a_trial_that_is_begun_again_at_its_end_keeps_its_metrics(tmp_path):
    stage = Stage(tmp_path)
    trial = stage.start("a")
    stage.report(trial, 2.0)
    stage.end(trial, **{ENDED: "done"})
    assert (stage.trials()[-1].metrics, stage.trials()[-1].value) == ({"loss": 2.0}, 2.0)


def test_in_a_population_every_checkpoint_stays(tmp_path):
    stage = Stage(tmp_path, stop="pbt")
    for name in ("a", "b"):
        trial = stage.start(name)
        stage.report(trial, 2.0)
        stage.save(trial, f"/run/{name}/checkpoint_0")
        stage.end(trial, **{ENDED: "done"})
    assert len(list(tmp_path.rglob("model"))) == 2


def test_what_an_interruption_leaves_says_what_to_begin_again(tmp_path):
    stage = Stage(tmp_path)
    one = stage.start("a")
    stage.report(one, 1.0)
    stage.save(one, "/run/a/checkpoint_0")
    (entry,) = Journal(tmp_path, "key").entries()
    assert (entry.trial.status, entry.trial.params) == ("running", one.config["params"])
    assert entry.checkpoint == "/run/a/checkpoint_0"


def test_a_trial_that_was_interrupted_at_its_end_keeps_the_value_of_its_checkpoint(tmp_path):
    before = Stage(tmp_path)
    kept, torn = before.start("a"), before.start("b")
    for trial in (kept, torn):
        before.report(trial, 1.0)
        before.save(trial, f"/run/{trial.trial_id}/checkpoint_0")
    (before.journal.folder_of("/run/b/checkpoint_0") / "model").write_text("half")
    after = Stage(tmp_path)
    # Begun again, both find that nothing is left to do.
    for trial in (after.start("a"), after.start("b")):
        after.end(trial, **{ENDED: "done"})
    first, second = (entry.trial for entry in after.chronicle.entries.values())
    assert (first.status, first.value, first.metrics, first.reports) == ("done", 1.0, {"loss": 1.0}, 1)
    # Without its checkpoint the other one was begun from its beginning, where it has reported nothing.
    assert (second.status, second.value) == ("failed", None)


def test_once_the_time_is_over_what_runs_counts_as_ended_early(tmp_path):
    stage = Stage(tmp_path)
    stage.report(stage.start("a"), 1.0)
    stage.chronicle.abandon()
    assert [trial.status for trial in stage.chronicle.ended_trials] == ["stopped"]


def test_the_reports_of_before_an_interruption_count(tmp_path):
    before = Stage(tmp_path)
    trial = before.start("a")
    before.report(trial, 3.0)
    before.report(trial, 2.0)
    before.save(trial, "/run/a/checkpoint_0")
    after = Stage(tmp_path)
    again = after.start("b")
    after.report(again, 1.0)
    after.end(again, **{ENDED: "done"})
    assert after.trials()[-1].reports == 3


def test_once_the_time_is_over_a_trial_that_was_to_go_on_keeps_what_it_had_reached(tmp_path):
    before = Stage(tmp_path)
    trial = before.start("a")
    before.report(trial, 1.0)
    before.save(trial, "/run/a/checkpoint_0")
    after = Stage(tmp_path)
    after.chronicle.abandon()
    (entry,) = after.chronicle.entries.values()
    assert (entry.trial.status, entry.trial.value, entry.checkpoint) == ("stopped", 1.0, "/run/a/checkpoint_0")
