"""A kind of workload that is none of raysm's: this module alone defines it, and takes it all the way."""

import json
import pickle
import time
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

import raysm
from raysm.client.python_version import python_version
from raysm.client.submit import prepare
from raysm.contract.names import LABEL_HOST
from raysm.errors import InvalidRequest, JobFailed
from raysm.request import Workload
from raysm.request.options import decides
from raysm.testing import Answer, FakeSageMaker
from raysm.workloads.runner import Runner

HOSTS = ("algo-1", "algo-2")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally(Workload):
    """How often each instance finds a word in its share of the texts."""

    runner: ClassVar[str] = f"{__name__}:TallyRunner"
    label: ClassVar[str] = "the tally"
    channels: ClassVar[tuple[str, ...]] = ("texts",)
    ray_variables: ClassVar[dict[str, str]] = {"TALLY_UNIT": "words"}
    keeps_state: ClassVar[bool] = False

    word: str = field(kw_only=False)
    """What is counted."""
    remark: str = field(default="", metadata=decides(result=False))
    """For people."""


class TallyRunner(Runner[Tally]):
    def run(self, address):
        import ray

        begun_s = time.monotonic()
        ray.init(address=address, log_to_driver=False)
        count = ray.remote(num_cpus=0)(occurrences)
        counts = [count.options(label_selector={LABEL_HOST: host}).remote(self.workload.word) for host in HOSTS]
        found = dict(zip(HOSTS, ray.get(counts), strict=True))
        ray.shutdown()
        (self.environment.paths.model / "tally.json").write_text(json.dumps(found))
        self.describe_result({"tally": time.monotonic() - begun_s}, summary=f"{len(found)} instances counted")


def occurrences(word):
    """Run on an instance, which imports this module as it travelled."""
    import os

    from raysm.bootstrap import environment

    folder = environment.read().paths.channel("texts")
    texts = [path.read_text() for path in sorted(folder.rglob("*.txt"))]
    return [sum(text.split().count(word) for text in texts), os.environ["TALLY_UNIT"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Greeting(Workload):
    """What a pickled function returns; made by ``Greet``."""

    runner: ClassVar[str] = f"{__name__}:NoRunner"
    returns_value: ClassVar[bool] = True

    @property
    def pickled_by(self):
        return python_version()


class Greet:
    """What is submitted instead."""

    def __init__(self, fn):
        self.fn = fn

    def workload(self):
        return Greeting()

    def pickled(self):
        return pickle.dumps((self.fn, ("world",), {}))

    def source(self):
        return None

    def title(self):
        return "greet"


def hello(whom):
    if whom != "world":
        raise ValueError(whom)
    return f"hello {whom}"


def refuse(whom):
    raise LookupError(whom)


@pytest.fixture
def texts(tmp_path):
    for name, text in {"a.txt": "to be or not to be", "b.txt": "let it be"}.items():
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / name).write_text(text)
    shared = raysm.Input(str(tmp_path / "texts"), distribution="ShardedByS3Key")
    return {"cluster": raysm.Cluster(count=2), "inputs": {"texts": shared}}


@pytest.fixture
def fake(tmp_path):
    return FakeSageMaker(tmp_path / "home")


@pytest.mark.usefixtures("home")
def test_a_kind_of_ones_own_runs_on_two_instances_and_is_not_run_again_for_the_same(texts):
    job = raysm.submit(Tally("be", remark="first"), **texts)
    result = job.result(timeout=300)
    assert json.loads((result / "tally.json").read_text()) == {"algo-1": [2, "words"], "algo-2": [1, "words"]}
    assert result.manifest.workload == {"kind": Tally.kind, "word": "be", "remark": "first"}
    assert result.manifest.instances == HOSTS
    assert raysm.submit(Tally("be", remark="second"), **texts, if_done="skip") == job
    assert prepare(Tally("it"), **texts).finished() is None
    assert raysm.attach(job.name).result(timeout=30).manifest.summary == "2 instances counted"


def test_a_job_is_named_after_its_kind_and_brings_the_module_that_defines_it(fake, texts):
    prepared = prepare(Tally("be"), **texts, on=fake)
    assert prepared.task == "Tally"
    assert "tests/jobs/test_own_kind.py" in prepared.source.files


def test_a_kind_without_state_has_nothing_synchronised_and_nothing_to_go_on_with(fake, texts):
    assert "CheckpointConfig" not in prepare(Tally("be"), **texts, on=fake).plan.request
    with pytest.raises(InvalidRequest, match="the tally keeps no state .* to resume from"):
        prepare(Tally("be"), **texts, on=fake, resume=True)
    with pytest.raises(InvalidRequest, match="the tally keeps no state .*limits.max_restarts"):
        prepare(Tally("be"), **texts, on=fake, limits=raysm.Limits(max_restarts=1))
    given = {"checkpoint_uri": "file:///state", "limits": raysm.Limits(max_restarts=1)}
    assert prepare(Tally("be"), **texts, on=fake, **given).plan.request["CheckpointConfig"]["S3Uri"] == "file:///state"


def test_a_channel_that_the_kind_reads_has_to_be_there(fake):
    with pytest.raises(InvalidRequest, match="Tally reads the channel 'texts'"):
        raysm.submit(Tally("be"), on=fake)


def test_the_fake_ends_it_as_the_test_says(fake, texts):
    fake.answer(Tally, Answer(files={"tally.json": b"{}"}))
    fake.answer(Tally.kind, Answer(status="Failed", reason="no words"))
    good, bad = (raysm.submit(Tally("be"), **texts, on=fake) for _ in range(2))
    assert (good.result(timeout=10) / "tally.json").read_bytes() == b"{}"
    with pytest.raises(JobFailed, match="no words"):
        bad.result(timeout=10)


def test_a_value_of_a_kind_of_ones_own_comes_back_as_a_functions_does(fake):
    assert raysm.submit(Greet(hello), on=fake).result(timeout=10) == "hello world"
    with pytest.raises(LookupError, match="world"):
        raysm.submit(Greet(refuse), on=fake).result(timeout=10)


def test_a_kind_that_is_made_by_a_wrapper_is_named_after_what_it_wraps(fake):
    assert prepare(Greet(hello), on=fake).task == "greet"
