"""``job.watch()``: a card that is drawn again as the job goes on."""

import datetime
import time

import pytest

from raysm.client.costs.bill import bill_of, dollars
from raysm.client.submit import submit
from raysm.contract.events import Metric, line
from raysm.errors import InvalidRequest
from raysm.request import Limits, Script
from raysm.views.card.watch import MIN_PAUSE_S, Watch, watch
from tests.support.client_jobs import EXCEEDED, M5, NOW_MS
from tests.support.running_job import job, remote
from tests.support.sagemaker import fake_aws, now, refusal
from tests.support.screens import WITHIN_S, Screen

__all__ = ["job", "remote"]


def tell(remote, job, at, text):
    remote.write_log(job.name, "algo-1", [(NOW_MS + at, text)])


def test_it_is_drawn_at_once_again_as_the_job_goes_on_and_no_more_once_it_has_ended(remote, job):
    screen = Screen()
    watching = watch(job, screen)
    assert len(screen.cards) == 1
    assert job.name in screen.cards[0]
    assert "live" in repr(watching)
    tell(remote, job, 1, "epoch 1")
    screen.wait_for("algo-1 | epoch 1")
    tell(remote, job, 2, line(Metric(name="loss", value=0.5, step=1)))
    screen.wait_for("0.5")
    remote.sagemaker.end(job.name, "Completed")
    assert watching.wait(WITHIN_S)
    assert "Completed" in screen.cards[-1]
    assert "ended" in repr(watching)
    drawn = len(screen.cards)
    tell(remote, job, 3, "late")
    assert len(screen.cards) == drawn


def test_while_a_follow_up_runs_its_card_tells_what_all_have_cost(tmp_path):
    (tmp_path / "train.py").touch()
    with fake_aws(region="us-east-1") as remote:
        started = now() - datetime.timedelta(hours=10)
        remote.sagemaker.script = [[EXCEEDED | {"TrainingStartTime": started, "BillableTimeInSeconds": 9 * 3600}]]
        limits = Limits(max_restarts=1)
        job = submit(Script(str(tmp_path / "train.py")), cluster=M5, on=remote.service, limits=limits)
        screen = Screen()
        watching = watch(job, screen)
        screen.wait_for(f"{job.chain.first}-r1")
        before, _ = job.chain.descriptions()
        # What the second one costs has not begun: it waits for its instances.
        screen.wait_for(f"about {dollars(bill_of([before], 'us-east-1').usd)} so far")
        remote.sagemaker.end(job.name, "Completed", BillableTimeInSeconds=0)
        assert watching.wait(WITHIN_S)


def test_there_are_at_most_two_cards_a_second(remote, job):
    screen = Screen()
    watching = Watch(job, screen)
    for number in range(40):
        tell(remote, job, number, f"line {number}")
        time.sleep(0.05)
    screen.wait_for("line 39")
    remote.sagemaker.end(job.name, "Completed")
    assert watching.wait(WITHIN_S)
    pauses = [after - before for before, after in zip(screen.times, screen.times[1:], strict=False)]
    # The first card is drawn by the caller, and the second once the pause is over.
    assert all(pause >= MIN_PAUSE_S * 0.9 for pause in pauses)


def test_a_service_that_is_away_is_said_and_borne(remote, job):
    screen = Screen()
    away = remote.fail("describe_training_job", refusal("ThrottlingException", "slow down"))
    watching = Watch(job, screen)
    screen.wait_for("the service does not answer now")
    away.end()
    remote.sagemaker.end(job.name, "Completed")
    assert watching.wait(WITHIN_S)
    assert "cannot be asked" not in screen.cards[-1]


def test_outside_of_a_notebook_it_says_what_does_the_same(job):
    with pytest.raises(InvalidRequest, match=r"in a terminal use job.logs\(follow=True\)"):
        watch(job)
