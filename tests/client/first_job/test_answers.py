"""A line for each thing that raysm takes for granted, from what the trials showed."""

import pytest

from raysm.client.description import read
from raysm.client.first_job.answers import NOTHING, QUESTIONS, answers, as_markdown
from raysm.client.first_job.observing import Observation
from raysm.client.first_job.running import Outcome
from raysm.client.first_job.trials import TRIALS
from raysm.contract.job_api import TRAINING

BY_NAME = {trial.name: trial for trial in TRIALS}


def outcome(name, *observations, status="Completed", objects=None, **answer):
    described = {"TrainingJobName": "x", "TrainingJobArn": "arn", "TrainingJobStatus": status, **answer}
    return Outcome(
        trial=BY_NAME[name],
        description=read(TRAINING, described),
        observations=tuple(Observation(topic=topic, host=host, values=values) for topic, host, values in observations),
        objects=objects or {},
        delay_s=3.0,
    )


def answered(question, seen):
    (text,) = [answer.text for answer in answers({seen.trial.name: seen}) if answer.question.name == question]
    return text


def place(device, gib):
    return {"device": device, "free": gib << 30, "total": gib << 30, "writable": True}


@pytest.mark.parametrize(
    ("question", "seen", "text"),
    [
        (
            "scratch",
            outcome("training", ("disks", "algo-1", {"df": {"/": place(1, 20), "/tmp": place(2, 900)}})),
            "algo-1: / on device 1 with 20 GiB free, /tmp on device 2 with 900 GiB free",
        ),
        (
            "FastFile",
            outcome("training", ("mapping", "algo-1", {"files": {"n.bin": "MAP_SHARED fails: OSError: [Errno 19]"}})),
            "algo-1: n.bin: MAP_SHARED fails: OSError: [Errno 19]",
        ),
        (
            "order of uploads",
            outcome(
                "outputs",
                ("left", "algo-1", {"at": 20.0}),
                ("left", "algo-2", {"at": 10.0}),
                objects={"output/model/same.txt": "algo-2\n"},
            ),
            "the instances ended in the order algo-2, algo-1; output/model/same.txt is of algo-2",
        ),
        (
            "Processing's interfaces",
            outcome(
                "processing",
                ("network", "algo-1", {"interfaces": ["lo", "eth0"]}),
                ("config", "algo-1", {"files": {"resourceconfig.json": '{"current_host": "algo-1"}'}}),
            ),
            "algo-1: the resource config names no interface; there are lo, eth0",
        ),
        (
            "isolation in Processing",
            outcome("isolated", ("met", "algo-2", {"reached": False, "obstacle": "timed out"})),
            "algo-2: not reached (timed out)",
        ),
        (
            "checkpoints after SIGKILL",
            outcome("killed", ("tick", "algo-1", {"tick": 130}), objects={"checkpoints/algo-1-tick.txt": "118\n"}),
            "the last second that was logged: algo-1 130; in S3: checkpoints/algo-1-tick.txt says 118",
        ),
        (
            "output/data after a failure",
            outcome("failing", objects={"output/data/failure.json": "{}"}, status="Failed"),
            "there are output/data/failure.json",
        ),
        ("output/data after a failure", outcome("failing", status="Failed"), "nothing is there"),
        (
            "reason of a failure",
            outcome("failing", FailureReason="AlgorithmError: ValueError, exit code: 1", status="Failed"),
            "AlgorithmError: ValueError, exit code: 1",
        ),
        (
            "PID 1",
            outcome("training", ("init", "algo-1", {"cmdline": "/sbin/docker-init -- x "})),
            "algo-1: /sbin/docker-init -- x",
        ),
        ("host name", outcome("training", ("system", "algo-1", {"hostname": "aws"})), "algo-1: aws"),
        ("lines of the log", outcome("training"), "the last line came 3 s after it was written"),
        (
            "tunnel",
            outcome("tunnel", ("tunnel", "algo-1", {"reached": True, "answer": "aws", "seconds": 3.5})),
            "algo-1: it answered 'aws' after 3.5 s",
        ),
        (
            "tunnel",
            outcome("tunnel", ("tunnel", "algo-1", {"reached": False, "obstacle": "AccessDenied: no"})),
            "algo-1: not reached (AccessDenied: no)",
        ),
        (
            "spot",
            outcome("spot", BillableTimeInSeconds=40, TrainingTimeInSeconds=100),
            "40 s billed of 100 s of training",
        ),
    ],
)
def test_what_was_seen_is_said_in_a_line(question, seen, text):
    assert answered(question, seen) == text


def test_what_was_not_seen_is_said_so():
    texts = {answer.question.name: answer.text for answer in answers({"training": outcome("training")})}
    assert texts["FastFile"] == NOTHING
    assert texts["order of uploads"] == "not seen: the trial outputs was left out"
    obstacle = Outcome(trial=BY_NAME["spot"], obstacle="no capacity")
    assert answered("spot", obstacle) == "not seen: no capacity"


def test_every_question_is_about_a_trial_that_there_is():
    assert {question.trial for question in QUESTIONS} <= set(BY_NAME)
    assert len({question.name for question in QUESTIONS}) == len(QUESTIONS)


def test_the_page_has_a_row_for_each_trial_and_each_question():
    page = as_markdown({"training": outcome("training"), "spot": Outcome(trial=BY_NAME["spot"], obstacle="a|b\nc")})
    assert page.count("\n| ") == 4 + 2 + len(QUESTIONS)
    assert "a\\|b c" in page
    assert "Not asked, since it takes instances of more than a dollar" in page
