"""A sweep as the user writes it, what travels with it, what is refused, its result, and its verdicts."""

import contextlib
import functools
import json
import math
import pickle

import pytest
from botocore.validate import ParamValidator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import raysm
from raysm.client.checks import check
from raysm.client.plan import plan
from raysm.client.results.result import read_as
from raysm.client.source.package import package_of
from raysm.client.sweep import Sweep, SweepResult
from raysm.contract.events import BEST, DIVERGED, Trial, Trials, best_of
from raysm.contract.service_model import service_model
from raysm.errors import InvalidRequest
from raysm.local.server.definitions import served
from raysm.local.server.validation import ApiError, check_rules
from raysm.local.server.validation import check as check_on_server
from raysm.request import Cluster, Input, InstanceGroup, JobRequest, Limits, MetricDefinition, Script, Security
from raysm.request.sweep import Earlier, FunctionSweep, ScriptSweep
from tests.support.client_jobs import manifest
from tests.support.sagemaker import aws, places_of

SPACE = {"lr": raysm.loguniform(1e-4, 1e-1), "batch": raysm.choice([32, 64])}


def train(lr, batch, epochs=3):
    return lr * batch * epochs


def train_by(config):
    return config["lr"]


def space(trial):
    return {"lr": trial.suggest_float("lr", 0, 1)}


def sweep(fn=train, **options):
    return Sweep(fn, **{"space": SPACE, "metric": "loss", "mode": "min"} | options)


def test_a_function_takes_the_parameters_by_name_or_all_as_one():
    assert sweep().workload().takes_config is False
    assert sweep(train_by).workload().takes_config is True
    assert sweep(lambda **params: 1).workload().takes_config is False
    assert sweep(train_by, space=space).workload().takes_config is True
    assert sweep(train_by, space=space).workload().draws is True
    assert sweep(functools.partial(train, epochs=9)).workload().takes_config is False


def test_function_and_space_travel_pickled_and_the_script_as_files(tmp_path):
    package = package_of(sweep(train_by, space=space))
    fn, (drawing,), named = pickle.loads(package.pickled)
    assert fn({"lr": 3}) == 3
    assert named == {}
    assert drawing.__name__ == "space"
    assert isinstance(package.workload, FunctionSweep)
    assert package.title == "train_by"
    script = tmp_path / "train.py"
    script.write_text("import raysm\n")
    package = package_of(sweep(raysm.Script(str(script), args=["--epochs", 3])))
    assert isinstance(package.workload, ScriptSweep)
    assert package.workload.args == ("--epochs", "3")
    assert package.pickled is None
    assert list(package.source.files) == ["train.py"]
    assert package.title == "train"
    assert package_of(sweep(script)).title == "train"


def test_the_direction_has_no_default():
    with pytest.raises(TypeError, match="mode"):
        Sweep(train, space=SPACE, metric="accuracy")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: sweep(space={"lrr": SPACE["lr"], "batch": SPACE["batch"]}),
            "'lr'; .*lr, batch, epochs, not lrr",
        ),
        (lambda: sweep("train.py", space=space), "script's space"),
        (lambda: sweep(warm_start="digits"), "warm_start.*'digits'"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make, said):
    with pytest.raises(InvalidRequest, match=said):
        make()


def earlier(folder, metric="loss", mode="min"):
    trials = (
        Trial(number=0, status="done", value=2.0, params={"lr": 0.1, "batch": 32}),
        Trial(number=1, status="failed", params={"lr": 0.2, "batch": 32}),
        Trial(number=2, status="stopped", value=3.0, params={"lr": 0.03, "batch": 64}),
    )
    Trials(metric=metric, mode="min", trials=trials, best=0).write(folder)
    return SweepResult(folder, manifest())


def test_a_warm_start_takes_the_trials_that_have_a_value(tmp_path):
    assert sweep(warm_start=earlier(tmp_path)).workload().warm_start == (
        Earlier(params={"lr": 0.1, "batch": 32}, value=2.0),
        Earlier(params={"lr": 0.03, "batch": 64}, value=3.0),
    )


def test_of_a_narrower_range_a_warm_start_takes_the_trials_that_lie_in_it(tmp_path):
    narrow = {"lr": raysm.loguniform(0.01, 0.05), "batch": raysm.choice([32, 64])}
    (taken,) = sweep(space=narrow, warm_start=earlier(tmp_path)).workload().warm_start
    assert taken.params == {"lr": 0.03, "batch": 64}
    elsewhere = {"lr": raysm.loguniform(1e-4, 1e-3), "batch": raysm.choice([32, 64])}
    with pytest.raises(InvalidRequest, match="none of the 2 trials of warm_start"):
        sweep(space=elsewhere, warm_start=earlier(tmp_path))


TRIALS = (
    Trial(number=0, status="done", value=2.0, params={"lr": 0.1}, metrics={"loss": 2.0, "lr": 7.0}, time_s=3),
    Trial(number=1, status="failed", params={"lr": 0.2}, reason="ValueError: <b>", time_s=1),
    Trial(number=2, status="stopped", value=1.5, params={"lr": 0.3}, metrics={"loss": 1.5}, reports=4, time_s=4),
    Trial(number=3, status="done", value=2.5, params={"lr": 0.4}, metrics={"loss": 2.5}, time_s=2),
)


@pytest.fixture
def result(tmp_path):
    Trials(metric="loss", mode="min", trials=TRIALS, best=2).write(tmp_path)
    (tmp_path / BEST).mkdir()
    return read_as(tmp_path, manifest(workload={"kind": "function_sweep"}, summary="best of 3"))


def test_the_best_trial_has_its_parameters_metrics_and_checkpoint(result, tmp_path):
    best = result.best
    assert (best.number, best.params, best.metrics, best.value) == (2, {"lr": 0.3}, {"loss": 1.5}, 1.5)
    assert best.checkpoint == tmp_path / BEST
    (tmp_path / BEST).rmdir()
    assert result.best.checkpoint is None


def test_the_table_is_rows_and_a_frame(result):
    rows = result.table().rows()
    assert rows[0]["lr"] == 0.1
    assert rows[0]["metrics.lr"] == 7.0
    assert rows[1]["reason"] == "ValueError: <b>"
    frame = result.table().to_frame()
    assert list(frame["value"].dropna()) == [2.0, 1.5, 2.5]
    assert frame.index.name == "number"


def test_the_best_come_first_where_people_look(result):
    lines = repr(result.table()).splitlines()
    assert lines[0].split() == ["trial", "status", "loss", "lr", "reports", "seconds"]
    assert [line.split()[0] for line in lines[1:]] == ["2", "0", "3", "1"]
    assert result.view.endswith(repr(result.table()))
    assert "best of 3" in repr(result)


def test_a_trial_that_diverged_is_marked_in_the_table_and_never_the_best(tmp_path):
    metrics = {"loss": math.inf, "other": math.nan}
    reason = DIVERGED.format("loss")
    diverged = Trial(number=4, status="failed", params={"lr": 9.0}, metrics=metrics, reason=reason)
    path = Trials(metric="loss", mode="min", trials=(diverged, *TRIALS), best=2).write(tmp_path)
    # As earlier versions wrote it: they can read the file.
    assert json.loads(path.read_text())["trials"][0]["metrics"] == {}
    found = read_as(tmp_path, manifest(workload={"kind": "function_sweep"}, summary="best of 3"))
    lines = repr(found.table()).splitlines()
    assert lines[-1].split()[:4] == ["4", "failed", "⚠", "nan"]
    assert math.isnan(found.trials.rows()[0]["loss"])
    assert best_of(found.trials, "min").number == 2


TYPES = ("ml.m5.large", "ml.g5.xlarge", "ml.p4d.24xlarge", "ml.m9i.large", "ml.m5.lrage", "m5.large", "ml.c5d.large")
URIS = ("s3://b/x", "s3://b/x/", "s3://b/rows.npy", "s3://b/v1.2/", "s3://b/" + "x" * 1020, "s3://b/ä", "s3://")
NAMES = ("a", "", " ", "é", "k" * 256, "k" * 513, "a b", "1a", "a-b")
VALUES = ("", "v", "x\ny", "v" * 256, "v" * 257, "v" * 2501)
KEYS = (None, "1234abcd", "alias/mine", "arn:aws:kms:eu-west-1:123456789012:key/k", "a key")


def drawn(kind, **fields):
    """Draw what makes a value, and make it later: some of it contradicts itself."""
    return st.fixed_dictionaries(fields).map(lambda chosen: lambda: kind(**chosen))


def choose(*values):
    return st.sampled_from(values)


GROUPS = (
    (),
    (InstanceGroup("a", "ml.m5.large", 1),),
    (InstanceGroup("a", "ml.g5.xlarge", 1), InstanceGroup("b", "ml.m5.large", 2)),
    (InstanceGroup("g" * 64, "ml.m5.large", 1), InstanceGroup("x y", "ml.m9i.large", 3)),
)
texts = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=2)
clusters = drawn(
    lambda shape, **fields: Cluster(**shape, **fields),
    shape=st.one_of(
        st.fixed_dictionaries({"instance_type": st.sampled_from(TYPES), "count": choose(1, 2, 101)}),
        st.fixed_dictionaries({"groups": st.sampled_from(GROUPS[1:])}),
    ),
    volume_gb=choose(30, 1, 126, 251, 16_385),
    keep_alive_s=choose(0, 600, 21_600),
    training_plan=choose(None, None, "arn", "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/p"),
)
limits = drawn(
    Limits,
    max_runtime_s=choose(86_400, 1, 777_601, 28 * 86_400),
    spot=st.booleans(),
    retry_attempts=choose(None, 1, 30),
)
securities = drawn(
    Security,
    subnets=choose((), ("subnet-1",), ("s" * 33,)),
    security_groups=choose((), ("sg-1",), ("g",) * 6),
    volume_kms_key=st.sampled_from(KEYS),
    output_kms_key=st.sampled_from(KEYS),
    encrypt_traffic=st.booleans(),
    isolation=st.booleans(),
    remote_debug=st.booleans(),
)
channels = drawn(
    Input,
    uri=st.sampled_from(URIS),
    mode=choose("File", "FastFile"),
    distribution=choose("FullyReplicated", "ShardedByS3Key"),
    content_type=choose(None, "text/csv", "x" * 257),
    groups=choose((), (), ("a",), ("a", "b")),
)
fields = st.fixed_dictionaries(
    {"cluster": clusters, "limits": limits, "kind": choose("training", "training", "processing")},
    optional={
        "security": securities,
        "inputs": st.dictionaries(choose("train", "test", "c" * 64), channels, max_size=2),
        "hyperparameters": texts,
        "environment": texts,
        "tags": texts,
        "metrics": st.just((MetricDefinition("loss", "loss=(.*)"),)),
        "checkpoint_uri": choose("s3://b/ck", "s3://b/" + "c" * 1020),
        "output_uri": choose("s3://b/out", "s3://b/" + "o" * 1020),
    },
)


def made(value):
    """Make what was drawn."""
    if isinstance(value, dict):
        return {key: made(item) for key, item in value.items()}
    return value() if callable(value) else value


@contextlib.contextmanager
def refused_by(*errors):
    """Collect whether the body refuses."""
    refusals = []
    try:
        yield refusals
    except errors as error:
        refusals.append(str(error))


def drawn_plan(chosen):
    """Return the call of a request; None where what was drawn is none, or its API lacks something of it."""
    with refused_by(InvalidRequest):
        request = JobRequest(name="job", workload=Script("x.py"), **made(chosen))
        return plan(request, target=aws(), places=places_of(aws()))
    return None


def on_server(sent):
    with refused_by(ApiError) as refusals:
        check_on_server(sent.api.create, sent.request)
        check_rules(sent.api, sent.request)
        served(sent.api).check(sent.request)
    return refusals


def of_botocore(sent):
    shape = service_model().operation_model(sent.api.create).input_shape
    return ParamValidator().validate(sent.request, shape).has_errors()


def same_verdicts(examples):
    """Return settings for so many requests, the same ones each time."""
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=slow)


def assert_one_verdict(chosen):
    sent = drawn_plan(chosen)
    if sent is None:  # refused while it was built, long before anything is uploaded
        return
    with refused_by(InvalidRequest) as of_client:
        check(sent, takes_files=False)
    of_server = on_server(sent)
    assert bool(of_client) == bool(of_server), (of_client, of_server, sent.json())
    # botocore's own check knows types and required members alone: what it refuses, everybody does.
    assert bool(of_client) >= of_botocore(sent)


@same_verdicts(60)
@given(fields)
def test_the_client_refuses_what_the_embedded_server_refuses_and_nothing_else(chosen):
    assert_one_verdict(chosen)


@pytest.mark.soak
@same_verdicts(5000)
@given(fields)
def test_thousands_of_requests_have_one_verdict_too(chosen):
    assert_one_verdict(chosen)
