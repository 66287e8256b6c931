"""The instances of one job: they come by the scenario and chance, and go back once."""

from random import Random
from types import SimpleNamespace

import pytest

from raysm.contract.job_api import TRAINING
from raysm.local.scenario import Capacity, Scenario
from raysm.local.server.supply import Supply


class Stock:
    """Says yes, and counts."""

    def __init__(self, has=True):
        self.has, self.out = has, 0

    def take(self, record):
        self.out += self.has
        return self.has

    def give_back(self, record):
        self.out -= 1


def supply(stock, **capacity):
    services = SimpleNamespace(stock=stock, scenario=Scenario(capacity=Capacity(**capacity)))
    return Supply(services, SimpleNamespace(region="us-east-1", api=TRAINING), Random(1))


def test_what_is_taken_is_given_back_once():
    stock = Stock()
    mine = supply(stock)
    assert mine.take()
    assert stock.out == 1
    mine.give_back()
    mine.give_back()
    assert stock.out == 0


def test_by_chance_there_are_none_though_the_region_has_some():
    stock = Stock()
    taken = [supply(stock, insufficient=1.0).take(), supply(Stock(has=False)).take()]
    assert taken == [False, False]
    assert stock.out == 0


@pytest.mark.parametrize(
    ("lack_ends", "status", "secondary"),
    [("Failed", "Failed", "Failed"), ("Stopped", "Stopped", "MaxWaitTimeExceeded")],
)
def test_a_job_that_gets_none_ends_as_the_scenario_says(lack_ends, status, secondary):
    ends = supply(Stock(), lack_ends=lack_ends).lack()
    assert ends[:2] == (status, secondary)
    assert (ends[3] or "").startswith("CapacityError") == (status == "Failed")


def test_seconds_are_drawn_by_the_scenario():
    mine = supply(Stock(), start_delay_s=5.0, interruptions_per_hour=1.0)
    assert mine.draw_start_s() == 5.0
    assert 0 < mine.draw_interruption_s(spot=True) < float("inf") == mine.draw_interruption_s(spot=False)


def test_at_a_line_spot_capacity_alone_is_taken_back():
    asked = []

    def interrupts(region, line):
        asked.append((region, line))
        return True

    mine = supply(SimpleNamespace(interrupts=interrupts))
    assert mine.is_taken_back_at("epoch 3", spot=True)
    assert not mine.is_taken_back_at("epoch 4", spot=False)
    # Of a job on demand nobody is asked: the words are left for one that is not.
    assert asked == [("us-east-1", "epoch 3")]
