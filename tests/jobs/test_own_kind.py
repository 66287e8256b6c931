"""A kind of workload that is none of raysm's: a module of the user's alone defines it, and takes it all the way."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest

import raysm
from raysm.core.client.submit import prepare
from raysm.errors import InvalidRequest, JobFailed
from raysm.testing import Answer

OWN = Path(__file__).parents[1] / "support" / "own_kinds.py"


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """The module, from a folder as users have one: as one of the package ``tests`` it would travel with a thousand."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(OWN, folder)
    sys.path.insert(0, str(folder))
    yield importlib.import_module(OWN.stem)
    sys.path.remove(str(folder))
    del sys.modules[OWN.stem]


@pytest.fixture
def texts(tmp_path):
    for name, text in {"a.txt": "to be or not to be", "b.txt": "let it be"}.items():
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / name).write_text(text)
    shared = raysm.Input(str(tmp_path / "texts"), distribution="ShardedByS3Key")
    return {"cluster": raysm.Cluster(count=2), "inputs": {"texts": shared}}


@pytest.mark.usefixtures("home")
def test_a_kind_of_ones_own_runs_on_two_instances_and_is_not_run_again_for_the_same(kinds, texts):
    job = raysm.submit(kinds.Tally("be", remark="first"), **texts)
    result = job.result(timeout=300)
    assert json.loads((result / "tally.json").read_text()) == {
        "algo-1": [2, "words"],
        "algo-2": [1, "words"],
    }
    assert result.manifest.workload == {"kind": kinds.Tally.kind, "word": "be", "remark": "first"}
    assert result.manifest.instances == kinds.HOSTS
    assert raysm.submit(kinds.Tally("be", remark="second"), **texts, if_done="skip") == job
    assert prepare(kinds.Tally("it"), **texts).finished() is None
    assert raysm.attach(job.name).result(timeout=30).manifest.summary == "2 instances counted"


def test_a_job_is_named_after_its_kind_and_brings_the_module_that_defines_it(kinds, fake, texts):
    prepared = prepare(kinds.Tally("be"), **texts, on=fake)
    assert prepared.task == "Tally"
    assert list(prepared.source.files) == ["own_kinds.py"]


def test_a_kind_without_state_has_nothing_synchronised_and_nothing_to_go_on_with(
    kinds, fake, texts
):
    assert "CheckpointConfig" not in prepare(kinds.Tally("be"), **texts, on=fake).plan.request
    with pytest.raises(InvalidRequest, match="tally .*resume"):
        prepare(kinds.Tally("be"), **texts, on=fake, resume=True)
    with pytest.raises(InvalidRequest, match="tally .*limits.max_restarts"):
        prepare(kinds.Tally("be"), **texts, on=fake, limits=raysm.Limits(max_restarts=1))
    given = {"checkpoint_uri": "file:///state", "limits": raysm.Limits(max_restarts=1)}
    request = prepare(kinds.Tally("be"), **texts, on=fake, **given).plan.request
    assert request["CheckpointConfig"]["S3Uri"] == "file:///state"


def test_a_channel_that_the_kind_reads_has_to_be_there(kinds, fake):
    with pytest.raises(InvalidRequest, match="Tally .*'texts'"):
        raysm.submit(kinds.Tally("be"), on=fake)


def test_the_fake_ends_it_as_the_test_says(kinds, fake, texts):
    fake.answer(kinds.Tally, Answer(files={"tally.json": b"{}"}))
    fake.answer(kinds.Tally.kind, Answer(status="Failed", reason="no words"))
    good, bad = (raysm.submit(kinds.Tally("be"), **texts, on=fake) for _ in range(2))
    assert (good.result(timeout=10) / "tally.json").read_bytes() == b"{}"
    with pytest.raises(JobFailed, match="no words"):
        bad.result(timeout=10)


def test_a_value_of_a_kind_of_ones_own_comes_back_as_a_functions_does(kinds, fake):
    assert raysm.submit(kinds.Greet(kinds.hello), on=fake).result(timeout=10) == "hello world"
    with pytest.raises(LookupError, match="world"):
        raysm.submit(kinds.Greet(kinds.refuse), on=fake).result(timeout=10)
