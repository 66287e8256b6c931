from raysm.contract.events import Progress
from raysm.workloads.report import ProgressThrottle


def test_progress_is_told_five_times_a_second_and_at_the_end():
    now, told = [0.0], []
    throttle = ProgressThrottle("similarity", 1000, "rows", told.append, clock=lambda: now[0])
    for _ in range(1000):
        now[0] += 0.001
        throttle.add(1)
    assert all(isinstance(event, Progress) and event.total == 1000 for event in told)
    assert [event.done for event in told][0] == 0
    assert told[-1].done == 1000
    assert len(told) <= 7
