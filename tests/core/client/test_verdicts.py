"""The client refuses what the embedded server refuses, and nothing else: requests drawn at random."""

import contextlib

import pytest
from botocore.validate import ParamValidator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raysm.core.client.checks import check
from raysm.core.client.plan import plan
from raysm.core.protocol.service_model import service_model
from raysm.core.request import (
    Cluster,
    Input,
    InstanceGroup,
    JobRequest,
    Limits,
    MetricDefinition,
    Security,
)
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from raysm.local.server.definitions import request_module
from raysm.local.server.validation import ApiError, check_rules
from raysm.local.server.validation import check as check_on_server
from tests.support.sagemaker import aws, places_of

TYPES = (
    "ml.m5.large",
    "ml.g5.xlarge",
    "ml.p4d.24xlarge",
    "ml.m9i.large",
    "ml.m5.lrage",
    "m5.large",
    "ml.c5d.large",
)
URIS = (
    "s3://b/x",
    "s3://b/x/",
    "s3://b/rows.npy",
    "s3://b/v1.2/",
    "s3://b/" + "x" * 1020,
    "s3://b/ä",
    "s3://",
)
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
        st.fixed_dictionaries(
            {"instance_type": st.sampled_from(TYPES), "count": choose(1, 2, 101)}
        ),
        st.fixed_dictionaries({"groups": st.sampled_from(GROUPS[1:])}),
    ),
    volume_gb=choose(30, 1, 126, 251, 16_385),
    keep_alive_s=choose(0, 600, 21_600),
    training_plan=choose(
        None, None, "arn", "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/p"
    ),
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
        request_module(sent.api).check(sent.request)
    return refusals


def of_botocore(sent):
    shape = service_model().operation_model(sent.api.create).input_shape
    return ParamValidator().validate(sent.request, shape).has_errors()


def same_verdicts(examples):
    """Return settings for so many requests, the same ones each time."""
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(
        max_examples=examples, deadline=None, derandomize=True, suppress_health_check=slow
    )


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
