"""A job's log for people, the list of its metrics, and what a caller waits for after some seconds of silence."""

import queue
import threading
from types import SimpleNamespace

import pytest

from raysm.core.client.job.description import SecondaryStatus, Status
from raysm.core.client.logs.metrics import Metrics
from raysm.core.client.logs.pending import JobWait, Silence, reasons_told
from raysm.core.client.logs.rendering import Rendering
from raysm.core.protocol.events import Metric, Progress, State, Trial, line
from raysm.errors import ServiceError


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
    assert [text.split(",")[0] for text in told] == [
        "train: 5% (5 of 100 rows",
        "train: 10% (10 of 100 rows",
    ]
    assert rendering.rest() == ["train: 12% (12 of 100 rows, 1 rows/s, 1 min 28 s left)"]
    assert rendering.rest() == []


EVIL = "\x1b]52;c;cm0=\x07\x1b[8m"


@pytest.mark.parametrize(
    "text",
    [
        EVIL,
        line(State(name=EVIL, host=EVIL, detail=EVIL)),
        line(Progress(phase=EVIL, done=1, total=1, unit=EVIL)),
        line(Metric(name=EVIL, value=1.0)),
        line(Trial(number=0, status="done", params={EVIL: EVIL}, metrics={EVIL: 1.0})),
    ],
)
def test_no_line_of_a_log_controls_the_terminal(text):
    rendering = Rendering(metrics=True)
    shown = "".join([*rendering.render("algo-1", text), *rendering.rest()])
    assert shown.isprintable()
    assert "\\x1b]52" in shown


def test_metrics_that_are_asked_for_are_one_line_every_few_seconds():
    clock = Clock()
    rendering = Rendering(metrics=True, clock=clock)
    told = []
    for step in range(100):
        clock.now_s = step / 10
        told += rendering.render("algo-1", line(Metric(name="loss", value=step / 100, step=step)))
        told += rendering.render(
            "algo-1", line(Metric(name="cpu_percent", value=99.0, host="algo-2"))
        )
    assert told == ["metrics at step 50: loss = 0.5", "algo-2: cpu_percent = 99"]
    assert rendering.rest() == ["metrics at step 99: loss = 0.99", "algo-2: cpu_percent = 99"]


def test_the_reason_of_a_failure_is_said_unless_it_is_told_elsewhere():
    text = line(State(name="failed", host="algo-1", detail="ValueError: no"))
    assert Rendering().render("algo-1", text) == ["algo-1 failed: ValueError: no"]
    assert Rendering(reasons=False).render("algo-1", text) == ["algo-1 failed"]


def test_a_reason_that_the_instance_has_remarked_in_its_log_is_not_said_again():
    remark, event = (
        "raysm: algo-1 failed: ValueError: no",
        State(name="failed", host="algo-1", detail="ValueError: no"),
    )
    rendering = Rendering()
    assert rendering.render("algo-1", remark) == [f"algo-1 | {remark}"]
    assert rendering.render("algo-1", line(event)) == []
    other = State(name="failed", host="algo-1", detail="algo-2 was lost")
    assert rendering.render("algo-1", line(other)) == ["algo-1 failed: algo-2 was lost"]


CURVE = Metrics(
    [
        Metric(name="loss", value=1.0, step=1, time_s=10.0),
        Metric(name="val/loss", value=1.5, step=1, time_s=10.0),
        Metric(name="cpu_percent", value=50.0, host="algo-2", time_s=15.0),
        Metric(name="loss", value=0.5, step=2, time_s=20.0),
    ]
)


def test_a_frame_has_a_row_for_each_value():
    frame = CURVE.to_frame()
    assert list(frame.columns) == ["name", "value", "host", "step", "time"]
    assert frame["value"].tolist() == [1.0, 1.5, 50.0, 0.5]
    assert frame["step"].isna().tolist() == [False, False, True, False]
    assert str(frame["time"][0]) == "1970-01-01 00:00:10+00:00"
    assert len(Metrics().to_frame()) == 0


def test_a_wide_frame_has_a_row_for_each_step():
    frame = CURVE.of_job().to_frame(wide=True)
    assert frame.index.tolist() == [1, 2]
    assert frame["loss"].tolist() == [1.0, 0.5]
    timed = CURVE.of_instances().to_frame(wide=True)
    assert timed["cpu_percent@algo-2"].tolist() == [50.0]
    assert timed.index.name == "time"
    assert len(Metrics().to_frame(wide=True)) == 0


DEADLINE_S = 300.0


def how(secondary, message="", status=Status.IN_PROGRESS):
    return SimpleNamespace(secondary=secondary, message=message, status=status)


class Job:
    """Answers each look with the next of what is given, then with the last of it."""

    name = "digits-1"

    def __init__(self, *answers):
        self._answers = list(answers)
        self.is_exhausted = threading.Event()

    def describe(self):
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if len(self._answers) == 1:
            self.is_exhausted.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def pending(message):
    return how(SecondaryStatus.PENDING, message)


def test_each_reason_is_told_once_and_a_look_that_fails_is_passed_over():
    said = queue.Queue()
    job = Job(ServiceError("away"), pending("a"), pending("a"), pending("b"))
    with reasons_told(job, said.put, every_s=0.001):
        assert said.get(timeout=DEADLINE_S) == "digits-1 is Pending: a"
        assert said.get(timeout=DEADLINE_S) == "digits-1 is Pending: b"
    assert said.empty()


@pytest.mark.parametrize(
    ("secondary", "lines", "told"),
    [
        (SecondaryStatus.STARTING, [], "waiting: the service starts the instances"),
        (SecondaryStatus.TRAINING, [], "waiting: the instances start Python and Ray"),
        (
            SecondaryStatus.TRAINING,
            ["raysm: looking for packages that this image lacks: torch"],
            "waiting: pip installs packages that the image lacks",
        ),
        (
            SecondaryStatus.TRAINING,
            [line(State(name="formed", count=2, total=2))],
            "waiting: the workload has started (its imports may take a while), and has printed nothing yet",
        ),
        (SecondaryStatus.TRAINING, [line(State(name="formed")), "epoch 1"], ""),
        (
            SecondaryStatus.TRAINING,
            [line(State(name="formed")), "raysm: matrix: 3 rows x 2 columns"],
            "",
        ),
        (SecondaryStatus.UPLOADING, ["epoch 1"], "waiting: the service stores the results"),
    ],
)
def test_what_is_waited_for_follows_from_the_status_and_the_log(secondary, lines, told):
    waits = JobWait(Job(how(secondary)))
    for text in lines:
        waits.on_line(text)
    assert waits.reason() == told


def test_what_is_shown_begins_the_silence_anew():
    said = queue.Queue()
    with Silence(said.put, lambda: "waiting", after_s=3600) as silence:
        silence.reset()
    assert said.empty()
    with Silence(said.put, lambda: "waiting", after_s=0.001):
        assert said.get(timeout=DEADLINE_S) == "waiting"
