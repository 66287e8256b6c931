"""Cards that are drawn again as a job goes on, by ``job.watch()`` and while a cell waits."""

import pytest

from raysm.contract.events import Metric, line
from raysm.errors import InvalidRequest, NotDone
from raysm.views.card import live_card
from raysm.views.card.live_card import MIN_PAUSE_S, NOTEBOOKS, MarimoOutput, output_here, shown_meanwhile, watch
from tests.support.client_jobs import NOW_MS
from tests.support.running_job import job, remote
from tests.support.sagemaker import refusal
from tests.support.screens import WITHIN_S, Screen

__all__ = ["job", "remote"]


def tell(remote, job, at, text):
    remote.write_log(job.name, "algo-1", [(NOW_MS + at, text)])


def test_it_is_drawn_at_once_again_as_the_job_goes_on_and_no_more_once_it_has_ended(remote, job):
    screen = Screen()
    watching = watch(job, screen)
    assert len(screen.cards) == 1
    assert job.name in screen.cards[0]
    assert repr(watching) == f"<card of {job.name}, live>"
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
    pauses = [after - before for before, after in zip(screen.times, screen.times[1:], strict=False)]
    assert all(pause >= MIN_PAUSE_S * 0.9 for pause in pauses), "there are at most two cards a second"


def test_a_service_that_is_away_is_said_and_borne(remote, job):
    screen = Screen()
    away = remote.fail("describe_training_job", refusal("ThrottlingException", "slow down"))
    watching = watch(job, screen)
    screen.wait_for("the service does not answer now")
    away.end()
    watching.stop()
    assert not watching._thread.is_alive()


def test_outside_of_a_notebook_nothing_is_drawn_and_it_is_said_what_does_the_same(job):
    assert [kind.is_here() for kind in NOTEBOOKS] == [False, False]
    assert NOTEBOOKS[0] is MarimoOutput, "marimo's kernel may have a shell of IPython too"
    with pytest.raises(InvalidRequest, match=r"which this is not: use job.logs\(follow=True\)"):
        output_here()
    with shown_meanwhile(job):
        assert job.chain.first not in live_card._latest


class Cell(Screen):
    """A screen that belongs to a cell of a notebook."""

    def __init__(self, cell):
        super().__init__()
        self._cell = cell

    @property
    def cell(self):
        return self._cell


def test_a_cell_that_waits_shows_one_card_which_says_how_the_job_ended(remote, job):
    screen, again, later = Cell(1), Cell(1), Cell(2)
    with pytest.raises(NotDone), shown_meanwhile(job, screen):
        job.wait(0)
    assert len(screen.cards) == 1
    with shown_meanwhile(job, again):
        # A second wait of the same cell, and a job that is watched already, get no card of their own.
        with shown_meanwhile(job, later):
            tell(remote, job, 1, "epoch 1")
            screen.wait_for("epoch 1")
        remote.sagemaker.end(job.name, "Completed")
    assert "Completed" in screen.cards[-1]
    assert again.cards == later.cards == []
    with shown_meanwhile(job, later):
        pass
    assert later.cards == [], "the job has ended: there is nothing to wait for"


def test_an_interrupted_cell_keeps_its_last_card(remote, job):
    first, second = Cell(1), Cell(2)
    with pytest.raises(KeyboardInterrupt), shown_meanwhile(job, first):
        raise KeyboardInterrupt
    drawn = len(first.cards)
    assert live_card._latest[job.chain.first][1].wait(WITHIN_S)
    assert "InProgress" in first.cards[-1]
    with shown_meanwhile(job, second):
        remote.sagemaker.end(job.name, "Completed")
    assert "Completed" in second.cards[-1]
    assert len(first.cards) <= drawn + 1
