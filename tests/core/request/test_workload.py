"""Tests of ``raysm.core.request.workload``."""

import dataclasses
import json
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.core.features import all_paths
from raysm.core.request import JobRequest, Workload
from raysm.core.request.codec import from_json, to_json
from raysm.core.request.external import CodeArtifact, check_index, check_tracking
from raysm.core.request.workload import (
    built_in_kind,
    of_arguments,
    of_command_line,
    require_workload,
    without_secrets,
)
from raysm.errors import InvalidRequest
from raysm.features.batch.request import BatchInference
from raysm.features.script.request import PickledFunction, Script
from raysm.features.session.request import SessionWorkload
from raysm.features.similarity.request import Similarity
from raysm.features.sweep.request import FunctionSweep, ScriptSweep
from raysm.features.training.request import TorchScript, TrainLoop


@pytest.mark.parametrize(
    ("args", "parameters"),
    [
        (["--lr", "0.1", "--batch=32"], {"lr": 0.1, "batch": 32}),
        (["--shift", "-0.5", "-n", "3"], {"shift": -0.5, "n": 3}),
        (["train.csv", "--verbose"], {"argument 1": "train.csv", "verbose": True}),
        (
            ["lr=0.1", "model=resnet", "a", "b"],
            {"lr": 0.1, "model": "resnet", "argument 1": "a", "argument 2": "b"},
        ),
        (["--seed", "0007", "--big", "9" * 40], {"seed": 7, "big": 1e40}),
        (["--", "-"], {"--": True, "-": True}),
    ],
)
def test_the_arguments_of_a_script_have_their_names(args, parameters):
    assert of_command_line(args) == parameters


def test_what_is_large_is_named_and_not_told():
    array = SimpleNamespace(shape=(1000, 3))
    shown = of_arguments(
        {"x": array, "text": "a" * 1000, "layers": [64, 32], "many": list(range(99)), "f": len}
    )
    assert shown["x"] == "<SimpleNamespace (1000, 3)>"
    assert len(shown["text"]) == 200
    assert shown["layers"] == "[64, 32]"
    assert shown["many"] == "<list>"
    assert shown["f"] == "<builtin_function_or_method>"
    assert len(of_arguments(dict.fromkeys(map(str, range(1000)), 1))) == 100


def test_what_looks_like_a_secret_is_not_told_and_a_number_is_none():
    shown = of_arguments(
        {"api_key": "abc", "config": {"db_password": "hunter2"}, "max_tokens": 512}
    )
    assert shown == {"api_key": "***", "config.db_password": "***", "max_tokens": 512}
    assert of_command_line(["--hf-token", "hf_123"]) == {"hf-token": "***"}


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "db_password_2",
        "passphrase",
        "pwd",
        "client-secret",
        "api_key",
        "token",
        "hf_token",
        "authToken",
    ],
)
@pytest.mark.parametrize("value", ["12345678", "1e9", "0.5"])
def test_a_number_that_is_named_like_a_secret_is_not_told(name, value):
    assert of_command_line([f"--{name}", value, f"--config.{name}={value}"]) == {
        name: "***",
        f"config.{name}": "***",
    }
    assert of_arguments({"config": {name: [12345678]}}) == {f"config.{name}": "[***]"}


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "tokenizer_threads",
        "eos_token_id",
        "privateers",
        "monkey",
        "passes",
        "tokens_per_step",
    ],
)
def test_a_number_that_is_named_like_a_count_is_told(name):
    assert of_command_line([f"--{name}", "512"]) == {name: 512}


def test_arguments_are_kept_without_the_values_that_are_secrets():
    args = [
        "train",
        "--api-key",
        "hunter2",
        "--password=1234",
        "--lr",
        "0.1",
        "token=abc",
        "--verbose",
        "--n",
        "-1",
    ]
    hidden = [
        "train",
        "--api-key",
        "***",
        "--password=***",
        "--lr",
        "0.1",
        "token=***",
        "--verbose",
        "--n",
        "-1",
    ]
    assert without_secrets(args) == hidden


@given(st.lists(st.text("-=.a1pwd", max_size=6), max_size=8))
def test_whatever_the_arguments_are_those_that_are_hidden_are_hidden_in_both_forms(args):
    hidden = of_command_line(args)
    assert of_command_line(without_secrets(args)) == hidden


def test_a_switch_that_is_named_like_a_secret_is_told():
    assert of_command_line(["--use-token"]) == {"use-token": True}


@given(st.lists(st.text(max_size=10), max_size=10))
def test_every_command_line_has_parameters_that_are_json(args):
    json.dumps(of_command_line(args), allow_nan=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen(Workload):
    runner: ClassVar[str] = "own:Runner"
    depth: int = 3
    words: tuple[str, ...] = ("a", "b")
    nothing: int | None = None


def test_each_workload_says_its_own():
    assert Chosen().parameters == {}, "nobody chose a default"
    assert Chosen(depth=4, words=("b", "a")).parameters == {"depth": 4, "words": "[b, a]"}
    assert Script("train.py", args=["--lr", "1"]).parameters == {"lr": 1}
    assert Similarity(top_k=5).parameters == {"top_k": 5}
    assert PickledFunction(name="f", python="3.11", arguments={"lr": 0.1}).parameters == {"lr": 0.1}


EXAMPLES = {
    "script": Script("train.py", args=["--lr", "1"]),
    "function": PickledFunction(name="module.work", python="3.11"),
    "similarity": Similarity(top_k=1),
    "torch_script": TorchScript("train.py"),
    "data_parallel": TrainLoop(name="module.loop", python="3.11"),
    "session": SessionWorkload(),
    "function_sweep": FunctionSweep(
        name="module.train", python="3.11", space={"lr": "uniform:0:1"}, metric="loss", mode="min"
    ),
    "script_sweep": ScriptSweep(
        script="train.py", space={"lr": "uniform:0:1"}, metric="loss", mode="min"
    ),
    "batch": BatchInference(name="module.Model", python="3.11", batch_size=8),
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Own(Workload):
    runner = "own:Runner"


class Bare(Workload):
    pass


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Runless(Workload):
    pass


@pytest.mark.parametrize("kind", all_paths("kinds"))
def test_a_kind_is_a_frozen_dataclass_that_goes_by_its_registered_name(kind):
    found = Workload.named(kind)
    assert found.kind == kind == EXAMPLES[kind].kind
    assert found is type(EXAMPLES[kind])
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(EXAMPLES[kind], dataclasses.fields(found)[0].name, 1)


def test_a_kind_of_ones_own_goes_by_its_import_path():
    assert Own.kind == f"{__name__}:Own"
    assert Workload.named(Own.kind) is Own
    assert Own().title == "Own"
    assert require_workload(Own()) == Own()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("dance", "'script'.*module:Class.*'dance'"),
        (["script"], r"got \['script'\]"),
        ("no_such_module:Kind", "'no_such_module:Kind'.*ModuleNotFoundError"),
        ("raysm.core.request:Cluster", "'raysm.core.request:Cluster'.*Workload"),
        ("os:system('x')", "'script'.*system"),
    ],
)
def test_a_kind_that_is_none_is_refused_with_where_it_stands(kind, message):
    with pytest.raises(InvalidRequest, match=f"request.workload.kind: .*{message}"):
        Workload.named(kind, "request.workload.kind")


def test_a_name_that_others_wrote_imports_nothing():
    assert built_in_kind("script") is Script
    assert built_in_kind("no_such_module:Kind") is None


def local_kind():
    @dataclasses.dataclass(frozen=True)
    class Local(Workload):
        runner = "own:Runner"

    return Local()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (print, r"raysm\.Function\(.*got <built-in"),
        (EXAMPLES["function"], r"raysm\.Function\(.*got PickledFunction"),
        (
            EXAMPLES["data_parallel"],
            r"raysm\.DataParallel\(.*got TrainLoop",
        ),
        (3, "Script.*Workload.*got 3"),
        (Bare(), "Bare .*dataclass"),
        (Runless(), "Runless .*runner.*got ''"),
        (local_kind(), "local_kind.*inside a function"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_cannot_be_submitted_is_refused_with_what_to_do(value, message):
    with pytest.raises(InvalidRequest, match=message):
        require_workload(value)


def test_it_travels_as_json():
    request = JobRequest(
        name="digits",
        workload=SessionWorkload(idle_timeout_s=60.0, max_cost=2.0, usd_per_hour=1.0),
    )
    assert from_json(JobRequest, to_json(request)) == request
    assert to_json(request)["workload"]["kind"] == "session"


@pytest.mark.parametrize("name", ["idle_timeout_s", "idle_timeout_detached_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "30m"])
def test_a_time_that_is_none_is_refused_with_its_name(name, value):
    with pytest.raises(InvalidRequest, match=f"{name} .*got {value!r}"):
        SessionWorkload(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("max_cost", 0), ("usd_per_hour", -1.0), ("usd_per_hour", "1")]
)
def test_money_that_is_none_is_refused(name, value):
    with pytest.raises(InvalidRequest, match=f"{name} .*got {value!r}"):
        SessionWorkload(**{"usd_per_hour": 1.0} | {name: value})


ARN = "arn:aws:codeartifact:eu-west-1:123456789012:repository/our-domain/our.repo_1"


def test_a_repository_of_codeartifact_is_known_by_its_arn():
    repository = CodeArtifact.of(ARN)
    assert dataclasses.astuple(repository)[1:] == (
        "eu-west-1",
        "123456789012",
        "our-domain",
        "our.repo_1",
    )
    assert CodeArtifact.of("https://pip.example/simple") is None


@pytest.mark.parametrize(
    "index",
    [
        ARN,
        "https://pip.example/simple",
        "http://10.0.0.9:8080/simple/",
        ARN.replace("aws:", "aws-cn:"),
    ],
)
def test_addresses_and_arns_pass(index):
    check_index(index)


@pytest.mark.parametrize(
    "index",
    ["pip.example", "ftp://host/simple", "https://", "https://a b/simple", ARN + "/more", ""],
)
def test_anything_else_is_refused_with_both_forms(index):
    with pytest.raises(
        InvalidRequest, match=f"https://.*CodeArtifact.*got {re.escape(repr(index))}"
    ):
        check_index(index)


def test_an_address_with_a_password_is_refused_and_the_password_not_repeated():
    with pytest.raises(InvalidRequest, match="pip_index.*password") as caught:
        check_index("https://me:hunter2@host/simple")
    assert "hunter2" not in str(caught.value)


MLFLOW = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/team"


@pytest.mark.parametrize("tracking", ["mlruns", "sqlite:///", "postgresql://x"])
def test_what_is_none_is_refused_with_those_that_there_are(tracking):
    with pytest.raises(
        InvalidRequest,
        match=f"tracking={re.escape(repr(tracking))}.*sqlite:///.*http://.*arn:aws:sagemaker",
    ):
        check_tracking(tracking)


@pytest.mark.parametrize(
    "tracking", ["https://me:hunter2@mlflow.example", "postgresql://me:hunter2@db.example/mlflow"]
)
def test_a_password_in_it_is_refused_and_not_repeated(tracking):
    with pytest.raises(InvalidRequest, match="tracking.*password") as raised:
        check_tracking(tracking)
    assert "hunter2" not in str(raised.value)


def test_a_request_knows_who_writes_and_what_that_takes():
    def request(tracking):
        return JobRequest(name="digits", workload=Script("train.py"), tracking=tracking)

    assert [
        request(uri).is_tracked_by_head for uri in (None, "sqlite:///m.db", "http://m:5000", MLFLOW)
    ] == [
        False,
        False,
        True,
        True,
    ]
    assert request(MLFLOW).packages == ("mlflow", "sagemaker_mlflow")
    assert request("sqlite:///m.db").packages == ()
    with pytest.raises(InvalidRequest, match="tracking='mlruns'"):
        request("mlruns")
