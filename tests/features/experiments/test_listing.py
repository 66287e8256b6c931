"""Which jobs are rows of the table, what is asked for them, and what is kept of it."""

import datetime
import threading

import pytest

from raysm.core.client.costs.prices import RegionPrices, save_prices
from raysm.core.client.job.description import Status
from raysm.core.client.submit import submit
from raysm.core.protocol.events import Metric, Trial, line
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import MetricDefinition
from raysm.errors import InvalidRequest
from raysm.features.experiments.listing import (
    Cache,
    Choice,
    Reading,
    experiments,
    open_cache,
    parse_since,
    with_trials,
)
from raysm.features.script.request import Script
from raysm.testing import Answer, FakeSageMaker
from tests.support.client_jobs import M5, NOW_MS
from tests.support.experiments import FULL, row
from tests.support.homes import in_home
from tests.support.sagemaker import now

NOW = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)


class CountingSageMaker(FakeSageMaker):
    """A fake that counts what is asked of single jobs."""

    asked = 0

    def call(self, client, operation, **parameters):
        self.asked += 1
        return super().call(client, operation, **parameters)

    def describe(self, api, name):
        self.asked += 1
        return super().describe(api, name)

    def tags(self, arn):
        self.asked += 1
        return super().tags(arn)


@pytest.fixture
def fake(tmp_path):
    return CountingSageMaker(tmp_path / "home")


@pytest.fixture
def run(fake, script):
    """Return a function that runs a job, and returns its name."""

    def run(*lines, status="Completed", **options):
        fake.answer("script", Answer(lines=lines, status=status))
        return submit(Script(str(script), args=options.pop("args", ())), on=fake, **options).name

    return run


def names(fake, **choice):
    return [row.name for row in experiments(fake, Choice(**choice))]


def test_of_jobs_that_ended_nothing_is_asked_but_the_list(fake, run):
    name = run(line(Metric(name="loss", value=0.5)), args=["--lr", "0.1"])
    # As if sent many times: to send them would take the test's time. A page of the list has 100.
    for number in range(150):
        arn = TRAINING.arn(region="us-east-1", account="123456789012", name=f"{name}-{number}")
        fake.jobs[f"{name}-{number}"] = fake.jobs[name] | {
            "TrainingJobName": f"{name}-{number}",
            "TrainingJobArn": arn,
        }
    fake.tags = lambda arn: {}
    first = experiments(fake, Choice(limit=2000))
    assert fake.asked > 100
    fake.asked = 0
    again = experiments(fake, Choice(limit=2000))
    assert fake.asked == 0
    assert [row.name for row in again] == [row.name for row in first]
    assert len(again) == 151


def trial(number, status, **fields):
    return line(Trial(number=number, status=status, params={"x": number}, **fields))


def test_behind_each_sweep_are_its_trials_read_once_as_the_sweep_is(fake, run):
    plain = run()
    sweep = run(
        trial(0, "running"),
        trial(0, "done", value=1.0),
        trial(1, "failed", reason="ValueError: no"),
    )
    rows = experiments(fake, Choice())
    fake.asked = 0
    every = with_trials(fake, rows)
    assert [one.name for one in every] == [sweep, f"{sweep}/0", f"{sweep}/1", plain]
    assert [one.trial for one in every] == [None, 0, 1, None]
    assert fake.asked == 0
    assert with_trials(fake, every)[3:] == every[1:]


def test_the_trials_of_a_sweep_that_runs_are_as_they_are_now(remote, job):
    rows = experiments(remote.service, Choice())
    assert [one.trial for one in with_trials(remote.service, rows)] == [None]
    remote.write_log(job.name, "algo-1", [(NOW_MS, trial(0, "running"))])
    (_, only) = with_trials(remote.service, rows)
    assert (only.name, only.status) == (f"{job.name}/0", Status.IN_PROGRESS)


def test_a_metric_definition_has_every_value_of_the_log_in_the_table_too(fake, run):
    run("loss=0.5", "loss=0.31", "loss=nan", metrics=[MetricDefinition("loss", "loss=(.*)")])
    (job,) = experiments(fake, Choice())
    summary = job.metrics["loss"]
    assert (summary.lowest, summary.highest, summary.count, summary.not_finite_from) == (
        0.31,
        0.5,
        3,
        "value 3",
    )


def test_a_job_that_runs_is_asked_for_each_time(remote, job):
    for described in (1, 2):
        assert [row.status for row in experiments(remote.service, Choice())] == [Status.IN_PROGRESS]
        assert remote.sagemaker.described == described
    remote.sagemaker.end(job.name, "Completed")
    for _ in range(2):
        assert [row.status for row in experiments(remote.service, Choice())] == [Status.COMPLETED]
        assert remote.sagemaker.described == 3


def test_a_cost_that_was_not_known_is_told_once_its_price_is(remote, job, tmp_path):
    def costs(usd_per_hour):
        prices = RegionPrices(
            region=remote.service.region,
            as_of="2026-11-20",
            version="1",
            usd={"ml.m5.large": usd_per_hour},
        )
        save_prices(prices)
        return [row.cost_usd for row in experiments(remote.service, Choice())]

    ended = now() - datetime.timedelta(hours=1)
    remote.sagemaker.end(
        job.name,
        "Completed",
        TrainingStartTime=ended,
        TrainingEndTime=ended,
        BillableTimeInSeconds=3600,
    )
    with in_home(tmp_path / "home"):
        assert [row.cost_usd for row in experiments(remote.service, Choice())] == [None]
        assert costs(0.2) == [pytest.approx(2 * 0.2, rel=0.05)]
        # Read once more, and kept, volumes and all: what it has cost does not change with what its
        # type costs today.
        assert costs(9.0) == [pytest.approx(2 * 0.2, rel=0.05)]


def test_accounts_and_homes_do_not_share_what_is_kept(remote, local, job):
    remote.sagemaker.end(job.name, "Completed")
    experiments(remote.service, Choice())
    assert open_cache(remote.service)._path.name == "123456789012-eu-west-1-6.sqlite"
    assert experiments(local.service, Choice()) == []


def test_they_are_chosen_by_project_task_status_and_name(fake, run):
    digits, other = run(project="digits", name="net"), run(project="words", name="net")
    failed = run(project="digits", name="tree", status="Failed")
    assert names(fake, project="digits") == [failed, digits]
    assert names(fake, task="net") == [other, digits]
    assert names(fake, status=(Status.FAILED,)) == [failed]
    assert names(fake, contains="tree") == [failed]
    assert names(fake, project="digits", status=(Status.COMPLETED,)) == [digits]
    assert names(fake, project="dig") == []
    assert names(fake, limit=1) == [failed]
    assert names(fake, project="digits", limit=1) == [failed]


def test_jobs_of_both_kinds_are_listed_the_latest_first(remote, script):
    made = [
        submit(Script(str(script)), cluster=M5, on=remote.service, kind=kind).name
        for kind in ("training", "processing", "training")
    ]
    assert names(remote.service) == made[::-1]


@pytest.mark.parametrize(
    ("since", "at"),
    [
        (None, None),
        ("7d", NOW - datetime.timedelta(days=7)),
        ("2026-11-01", datetime.datetime(2026, 11, 1).astimezone()),
        (datetime.datetime(2026, 11, 1), datetime.datetime(2026, 11, 1).astimezone()),
    ],
)
def test_a_time_is_said_as_people_say_it(since, at):
    assert parse_since(since, NOW) == at


@pytest.mark.parametrize("since", ["yesterday", "7 fortnights", "999999d", f"{10**30}w"])
def test_what_is_no_time_is_refused(since):
    with pytest.raises(InvalidRequest, match=f"since.*{since!r}"):
        parse_since(since, NOW)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "home" / "experiments" / "here.sqlite")


def read(job, trials=(), **curves):
    return Reading(row=job, curves=curves, trials=trials, is_final=True)


def kept(cache):
    return sorted(row.name for row in cache.rows().values())


def test_what_is_kept_comes_back_in_another_process(cache):
    cache.keep([read(FULL, loss=[(0, 1.0, 2.0), (None, 2.0, 0.5)])])
    again = Cache(cache._path)
    assert again.rows() == {"arn:1": FULL}
    assert again.curves("arn:1", ["loss", "accuracy"]) == {
        "loss": [(0, 1.0, 2.0), (None, 2.0, 0.5)]
    }
    assert again.curves("arn:1", ["loss"], "arn:1/3") == {}


def test_the_trials_of_a_sweep_are_kept_apart_and_forgotten_with_it(cache):
    trials = [
        row(name=f"digits-1/{number}", arn=f"arn:1/{number}", trial=number) for number in (0, 1, 10)
    ]
    assert cache.trials() == {}
    cache.keep([read(FULL, trials), read(row(arn="arn:2"))])
    assert cache.rows().keys() == {"arn:1", "arn:2"}
    assert cache.trials() == {"arn:1": trials}
    cache.forget(["arn:1"])
    assert cache.trials() == {}


@pytest.mark.parametrize(
    "content",
    [b"this is no database, but long enough to be read as one" * 20, b"SQLite format 3\0torn"],
)
def test_a_torn_file_is_made_anew(cache, content):
    cache._path.parent.mkdir(parents=True)
    cache._path.write_bytes(content)
    assert cache.rows() == {}
    cache.keep([read(FULL)])
    assert kept(cache) == ["digits-1"]


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "here.sqlite")
    cache.keep([read(FULL)])
    assert cache.rows() == {}


def test_several_may_keep_at_once(cache):
    def keep(number):
        cache.keep(
            [
                read(row(arn=f"arn:{number}:{job}", name=f"j{number}-{job}"), loss=[])
                for job in range(5)
            ]
        )

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache.rows()) == 40
