"""What stands at a field is what the plan, the digest, a follow-up job and a Processing job make of it."""

import dataclasses
import datetime
from collections.abc import Mapping

import pytest

from raysm.core.client.costs.cap import cap
from raysm.core.client.job.chain import follow_up
from raysm.core.client.job.description import read
from raysm.core.client.job.records import digest_of
from raysm.core.client.plan import plan
from raysm.core.client.submit import job_tags
from raysm.core.protocol.job_api import TRAINING
from raysm.core.protocol.names import MAX_RESTARTS_TAG, TRAIN_STORAGE
from raysm.core.request import (
    Cluster,
    Input,
    InstanceGroup,
    JobRequest,
    Limits,
    MetricDefinition,
    Ports,
    Security,
    Workload,
)
from raysm.core.request.options import check_names, decides, decisive, options_of
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from tests.support.sagemaker import aws, places_of

BASE = JobRequest(
    name="job",
    workload=Script("train.py"),
    cluster=Cluster("ml.m5.large", count=2),
    inputs={"train": Input("s3://b/x/")},
)
GROUPS = (InstanceGroup("head", "ml.m5.large", 1), InstanceGroup("work", "ml.c5.xlarge", 2))
GROUPED = dataclasses.replace(
    BASE, cluster=Cluster(groups=GROUPS), inputs={"train": Input("s3://b/x/")}
)
NETWORK = Security(subnets=("subnet-1",), security_groups=("sg-1",))


def with_(part, base=BASE, **fields):
    """Return ``base`` with other values in one of its parts."""
    return dataclasses.replace(base, **{part: dataclasses.replace(getattr(base, part), **fields)})


def with_input(base=BASE, **fields):
    return dataclasses.replace(
        base, inputs={"train": dataclasses.replace(base.inputs["train"], **fields)}
    )


MLFLOW = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/team"
SPOT = with_("limits", spot=True)
NETWORKED = dataclasses.replace(BASE, security=NETWORK)

CHOICES = {
    "name": (BASE, dataclasses.replace(BASE, name="other")),
    "workload": (BASE, dataclasses.replace(BASE, workload=Script("other.py"))),
    "cluster.instance_type": (BASE, with_("cluster", instance_type="ml.c5.xlarge")),
    "cluster.count": (BASE, with_("cluster", count=3)),
    "cluster.groups": (BASE, GROUPED),
    "cluster.head": (GROUPED, with_("cluster", GROUPED, head="work")),
    "cluster.coordinator_only": (BASE, with_("cluster", coordinator_only=True)),
    "cluster.min_instances": (BASE, with_("cluster", min_instances=1)),
    "cluster.join_timeout_s": (BASE, with_("cluster", join_timeout_s=60.0)),
    "cluster.placement_timeout_s": (BASE, with_("cluster", placement_timeout_s=60.0)),
    "cluster.volume_gb": (BASE, with_("cluster", volume_gb=100)),
    "cluster.keep_alive_s": (BASE, with_("cluster", keep_alive_s=60)),
    "cluster.training_plan": (BASE, with_("cluster", training_plan="arn")),
    "cluster.alternatives": (BASE, with_("cluster", alternatives=("ml.c5.xlarge",))),
    "cluster.on_instance_loss": (BASE, with_("cluster", on_instance_loss="continue")),
    "cluster.allow_cpu": (BASE, with_("cluster", allow_cpu=True)),
    "cluster.silence_s": (BASE, with_("cluster", silence_s=60.0)),
    "inputs['train'].uri": (BASE, with_input(uri="s3://b/y/")),
    "inputs['train'].distribution": (BASE, with_input(distribution="ShardedByS3Key")),
    "inputs['train'].mode": (BASE, with_input(mode="FastFile")),
    "inputs['train'].content_type": (BASE, with_input(content_type="text/csv")),
    "inputs['train'].groups": (GROUPED, with_input(GROUPED, groups=("work",))),
    "inputs['train'].manifest": (BASE, with_input(manifest=True)),
    "grace_s": (BASE, dataclasses.replace(BASE, grace_s=10.0)),
    "ports": (BASE, dataclasses.replace(BASE, ports=Ports(gcs=7000))),
    "project": (BASE, dataclasses.replace(BASE, project="other")),
    "limits.max_runtime_s": (BASE, with_("limits", max_runtime_s=60)),
    "limits.spot": (BASE, SPOT),
    "limits.max_wait_s": (SPOT, with_("limits", SPOT, max_wait_s=100_000)),
    "limits.retry_attempts": (BASE, with_("limits", retry_attempts=3)),
    "limits.max_cost": (BASE, with_("limits", max_cost=1.0)),
    "limits.max_cost_per_day": (BASE, with_("limits", max_cost_per_day=1.0)),
    "limits.price_per_hour": (BASE, with_("limits", price_per_hour=1.0)),
    "limits.max_restarts": (BASE, with_("limits", max_restarts=3)),
    "limits.stall_s": (BASE, with_("limits", stall_s=60)),
    "limits.on_stall": (BASE, with_("limits", on_stall="fail")),
    "security.subnets": (NETWORKED, with_("security", NETWORKED, subnets=("subnet-2",))),
    "security.security_groups": (
        NETWORKED,
        with_("security", NETWORKED, security_groups=("sg-2",)),
    ),
    "security.volume_kms_key": (BASE, with_("security", volume_kms_key="kv")),
    "security.output_kms_key": (BASE, with_("security", output_kms_key="ko")),
    "security.encrypt_traffic": (BASE, with_("security", encrypt_traffic=True)),
    "security.isolation": (BASE, with_("security", isolation=True)),
    "security.remote_debug": (BASE, with_("security", remote_debug=True)),
    "environment": (BASE, dataclasses.replace(BASE, environment={"A": "1"})),
    "hyperparameters": (BASE, dataclasses.replace(BASE, hyperparameters={"lr": "0.1"})),
    "hyperparameters_as_args": (BASE, dataclasses.replace(BASE, hyperparameters_as_args=True)),
    "tags": (BASE, dataclasses.replace(BASE, tags={"team": "a"})),
    "metrics": (BASE, dataclasses.replace(BASE, metrics=(MetricDefinition("loss", "(.*)"),))),
    "stop_on_nan": (BASE, dataclasses.replace(BASE, stop_on_nan="loss")),
    "requirements": (BASE, dataclasses.replace(BASE, requirements=("tqdm",))),
    "pip_index": (BASE, dataclasses.replace(BASE, pip_index="https://host/simple")),
    "checkpoint_uri": (BASE, dataclasses.replace(BASE, checkpoint_uri="s3://b/ck")),
    "tracking": (BASE, dataclasses.replace(BASE, tracking=MLFLOW)),
    "output_uri": (BASE, dataclasses.replace(BASE, output_uri="s3://b/out")),
    "kind": (BASE, dataclasses.replace(BASE, kind="processing")),
}
"""Each option: a request, and one that differs in it alone."""

OTHER_CALL = "kind"
"""The option that makes it the call of the other API, and none of the keys of this one."""


def call_of(request, target=None):
    target = target or aws()
    capped, limits = None, request.limits
    if limits.max_cost is not None:
        capped = cap(limits.max_cost, usd_per_hour=1.0, max_runtime_s=limits.max_runtime_s)
    return plan(request, target=target, places=places_of(target), cap=capped).request


def flat(call, path=""):
    """Return the values of a call by their dotted keys; a list is one value."""
    if not isinstance(call, Mapping):
        return {path: call}
    return {
        at: value
        for key, item in call.items()
        for at, value in flat(item, f"{path}.{key}" if path else key).items()
    }


def changed(before, after):
    before, after = flat(before), flat(after)
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def facts(request):
    return {option.path: option.decides for option in options_of(request)}


def test_every_option_of_a_request_is_tried_here():
    assert set(CHOICES) == set(facts(BASE))


@pytest.mark.parametrize("path", [path for path in CHOICES if path != OTHER_CALL])
def test_an_option_changes_those_keys_of_the_call_that_its_field_names(path):
    before, after = CHOICES[path]
    named = facts(after)[path].create
    # The default storage of Ray Train follows from the place of the results.
    keys = changed(call_of(before), call_of(after)) - {f"Environment.{TRAIN_STORAGE}"}
    assert {key for key in keys if not key.startswith(named)} == set()
    assert {key for key in named if not any(at.startswith(key) for at in keys)} == set()


@pytest.mark.parametrize("path", CHOICES)
def test_an_option_is_part_of_the_digest_where_its_field_says_that_the_result_depends_on_it(path):
    before, after = CHOICES[path]
    differs = digest_of(before, aws()) != digest_of(after, aws())
    # A group instead of a type and a count is another type and count too.
    assert differs is facts(after)[path].result


@pytest.mark.parametrize("path", [path for path in CHOICES if path != OTHER_CALL])
def test_processing_refuses_those_options_and_no_others_whose_fields_say_that_it_lacks_them(path):
    request = dataclasses.replace(CHOICES[path][1], kind="processing")
    lacks = {
        option.decides.processing_lacks for option in options_of(request) if option.is_asked_for
    } - {None}
    if facts(request)[path].processing_lacks is None and not lacks:
        call_of(request)
        return
    with pytest.raises(InvalidRequest, match="Processing job has no"):
        call_of(request)


def whole(**fields):
    """Return a request that asks for all that can be had at once."""
    return dataclasses.replace(
        BASE,
        limits=Limits(spot=True, max_wait_s=100_000, retry_attempts=2, max_restarts=2),
        security=dataclasses.replace(
            NETWORK, volume_kms_key="kv", output_kms_key="ko", encrypt_traffic=True
        ),
        environment={"A": "1"},
        hyperparameters={"lr": "0.1"},
        tags={"team": "a"},
        metrics=(MetricDefinition("loss", "(.*)"),),
        **fields,
    )


def test_a_follow_up_is_the_same_call_under_the_next_name():
    request = whole(checkpoint_uri="s3://b/ck", output_uri="s3://b/out")
    tags = {**job_tags(request, "task"), **request.tags}
    sent = plan(request, target=aws(), places=places_of(aws()), tags=tags).request
    answer = {key: item for key, item in sent.items() if key != "Tags"} | {
        "TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/job",
        "TrainingJobStatus": "Stopped",
        "SecondaryStatus": "MaxRuntimeExceeded",
        "CreationTime": datetime.datetime.now(datetime.UTC),
    }
    following = follow_up(read(TRAINING, answer), tags).request
    assert tags[MAX_RESTARTS_TAG] == "2"
    assert {
        key for key in changed(sent, following) if key not in ("TrainingJobName", "Tags")
    } == set()
    assert {"Key": "team", "Value": "a"} in following["Tags"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Noted(Workload):
    steps: int = 1
    note: str = dataclasses.field(default="", metadata=decides(result=False))


def test_a_workloads_fields_decide_the_result_unless_they_say_otherwise():
    choices = (Noted(), Noted(note="x"), Noted(steps=2))
    plain, noted, other = (dataclasses.replace(BASE, workload=workload) for workload in choices)
    assert decisive(plain) == decisive(noted) != decisive(other)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("color", "draw.*'color'.*colour"),
        ("zzz", "draw.*'zzz'.*size, colour"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name, message):
    check_names("draw", ["size", "colour"], {"size": 1})
    with pytest.raises(InvalidRequest, match=message):
        check_names("draw", ["size", "colour"], {name: 1})
