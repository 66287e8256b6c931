"""A job's log for people."""

from raysm.client.logs.rendering import Rendering
from raysm.contract.events import Metric, Progress, State, line


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def progress(done, time_s=0.0):
    return line(Progress(phase="train", done=done, total=100, unit="rows", time_s=time_s))


def test_progress_is_told_every_few_seconds_and_how_far_it_came_at_the_end():
    clock = Clock()
    rendering = Rendering(clock=clock)
    told = []
    for second in range(13):
        clock.now_s = float(second)
        told += rendering.render("algo-1", progress(second, time_s=second))
    assert [text.split(",")[0] for text in told] == ["train: 5% (5 of 100 rows", "train: 10% (10 of 100 rows"]
    assert rendering.rest() == ["train: 12% (12 of 100 rows, 1 rows/s, 1 min 28 s left)"]
    assert rendering.rest() == []


def test_metrics_that_are_asked_for_are_one_line_every_few_seconds():
    clock = Clock()
    rendering = Rendering(metrics=True, clock=clock)
    told = []
    for step in range(100):
        clock.now_s = step / 10
        told += rendering.render("algo-1", line(Metric(name="loss", value=step / 100, step=step)))
        told += rendering.render("algo-1", line(Metric(name="cpu_percent", value=99.0, host="algo-2")))
    assert told == ["metrics at step 50: loss = 0.5", "algo-2: cpu_percent = 99"]
    assert rendering.rest() == ["metrics at step 99: loss = 0.99", "algo-2: cpu_percent = 99"]


def test_the_reason_of_a_failure_is_said_unless_it_is_told_elsewhere():
    text = line(State(name="failed", host="algo-1", detail="ValueError: no"))
    assert Rendering().render("algo-1", text) == ["algo-1 failed: ValueError: no"]
    assert Rendering(reasons=False).render("algo-1", text) == ["algo-1 failed"]


def test_a_reason_that_the_instance_has_remarked_in_its_log_is_not_said_again():
    remark, event = "raysm: algo-1 failed: ValueError: no", State(name="failed", host="algo-1", detail="ValueError: no")
    rendering = Rendering()
    assert rendering.render("algo-1", remark) == [f"algo-1 | {remark}"]
    assert rendering.render("algo-1", line(event)) == []
    other = State(name="failed", host="algo-1", detail="algo-2 was lost")
    assert rendering.render("algo-1", line(other)) == ["algo-1 failed: algo-2 was lost"]
