"""Who runs when the cores are few."""

from raysm.local.server.services import Cores


def test_who_waits_is_told_what_for_and_behind_whom():
    capacity = Cores(2)
    runs = capacity.ask(1, "runs")
    first, second = capacity.ask(2, "first"), capacity.ask(1, "second")
    third = capacity.ask(9, "third")
    assert capacity.reason(runs) == ""
    assert capacity.reason(first) == "waits for 2 of 2 cores, 1 of them free; number 1 in line, while runs runs"
    assert capacity.reason(second) == "waits for 1 of 2 cores, 1 of them free; number 2 in line, behind first"
    assert capacity.reason(third) == "waits for 2 of 2 cores, 1 of them free; number 3 in line, behind second"
    capacity.give_back(runs)
    assert capacity.reason(second) == "waits for 1 of 2 cores, 0 of them free; number 1 in line, while first runs"


def test_a_job_of_more_instances_than_cores_runs_alone():
    capacity = Cores(2)
    one, huge = capacity.ask(1), capacity.ask(10)
    assert not huge.granted
    capacity.give_back(one)
    assert huge.granted
    assert not capacity.ask(1).granted


def test_who_leaves_the_queue_lets_the_next_one_by_and_cores_come_back_once():
    capacity = Cores(2)
    first, second, third = capacity.ask(1), capacity.ask(2), capacity.ask(1)
    capacity.give_back(second)
    assert third.granted
    for _ in range(3):
        capacity.give_back(first)
        capacity.give_back(third)
    assert capacity.wait(capacity.ask(2), 0.0)
    assert not capacity.wait(capacity.ask(1), 0.01)
