"""Limits, metrics, clusters and targets of a request."""

import re
from dataclasses import fields

import pytest

import raysm
from raysm.core.request import JobRequest
from raysm.core.request.cluster import Alternative, Cluster, Input, InstanceGroup, Ports
from raysm.core.request.limits import MAX_RUNTIME_S, Limits, MetricDefinition, Security
from raysm.core.request.targets import AWS, INSTANCE_KINDS, Local, instance_kind, kind_of_image
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_runtime_s": MAX_RUNTIME_S + 1}, f"max_runtime_s.*{MAX_RUNTIME_S + 1}"),
        ({"max_runtime_s": "2h"}, "max_runtime_s.*'2h'"),
        ({"max_wait_s": 10}, "max_wait_s.*spot=True"),
        (
            {"spot": True, "max_runtime_s": 100, "max_wait_s": 99},
            "max_wait_s=99 .*max_runtime_s=100",
        ),
        ({"retry_attempts": 31}, "retry_attempts.*31"),
        ({"stall_s": 5}, "stall_s.*10.*5"),
        ({"stall_s": "5m"}, "stall_s.*'5m'"),
        ({"on_stall": "stop"}, "on_stall.*'stop'"),
        ({"on_stall": "fail", "stall_s": 0}, "on_stall='fail' needs stall_s"),
        ({"on_stall": "restart"}, "on_stall='restart' needs max_restarts"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_with_its_value(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        Limits(**fields)


@pytest.mark.parametrize("fields", [{"subnets": ["subnet-1"]}, {"security_groups": ["sg-1"]}])
def test_half_a_network_is_refused(fields):
    with pytest.raises(InvalidRequest, match="subnets and security_groups"):
        Security(**fields)


def job(**fields):
    return JobRequest(name="a", workload=Script("a.py"), cluster=Cluster(), **fields)


LISTS = {
    "Cluster.alternatives": lambda value: Cluster("ml.m5.large", alternatives=value),
    "Cluster.groups": lambda value: Cluster(groups=value),
    "Input.groups": lambda value: Input("s3://b/k", groups=value),
    "Local.regions": lambda value: Local(regions=value),
    "JobRequest.metrics": lambda value: job(metrics=value),
    "JobRequest.requirements": lambda value: job(requirements=value),
    "Security.subnets": lambda value: Security(subnets=value, security_groups=["sg-1"]),
    "Security.security_groups": lambda value: Security(subnets=["s-1"], security_groups=value),
    "Grid.regions": lambda value: raysm.Grid("a.py", rows=[{"x": 1}], regions=value),
    "tune.parents": lambda value: raysm.tune(SWEEP, parents=value),
    "submit.wheels": lambda value: raysm.submit(Script("a.py"), wheels=value),
}
SWEEP = raysm.Sweep("a.py", space={"x": raysm.choice([1])}, metric="loss", mode="min")


@pytest.mark.parametrize("option", LISTS)
def test_one_value_in_place_of_a_list_is_refused_with_the_list_to_write(option):
    with pytest.raises(InvalidRequest) as refused:
        LISTS[option]("ml.m5.xlarge")
    name = option.partition(".")[2]
    assert f"{name} must be a list, got 'ml.m5.xlarge'; write {name}=['ml.m5.xlarge']" in str(
        refused.value
    )


@pytest.mark.parametrize("option", ["Cluster.groups", "JobRequest.metrics", "Input.groups"])
@pytest.mark.parametrize("value", [InstanceGroup("head", "ml.m5.large", 1), 3, None])
def test_what_is_no_list_at_all_is_refused_too(option, value):
    with pytest.raises(InvalidRequest, match=f"{option.partition('.')[2]} must be a list"):
        LISTS[option](value)


def test_any_list_becomes_a_tuple():
    assert Cluster("ml.m5.large", alternatives=["ml.m5.xlarge"]).alternatives == ("ml.m5.xlarge",)
    assert Local(regions=["eu-west-1"]).regions == ("eu-west-1",)
    assert job(requirements=[f"package-{number}" for number in (1, 2)]).requirements == (
        "package-1",
        "package-2",
    )


def test_a_shell_into_an_isolated_job_is_refused():
    with pytest.raises(InvalidRequest, match="remote_debug.*isolation"):
        Security(remote_debug=True, isolation=True)


@pytest.mark.parametrize(
    ("name", "regex", "message"),
    [
        ("", "x", "name.*got ''"),
        ("loss", "", "regex.*got 0"),
        ("loss", "loss=(", r"'loss=\('"),
    ],
)
def test_a_metric_that_the_service_could_not_find_is_refused(name, regex, message):
    with pytest.raises(InvalidRequest, match=message):
        MetricDefinition(name, regex)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"metrics_export": 65536}, "metrics_export.*65536"),
        ({"dashboard": 6379}, "dashboard.*gcs.*6379"),
        ({"control": 0}, "control"),
        ({"worker_min": 20000}, "worker_max=19999 .*worker_min=20000"),
    ],
)
def test_ports_that_cannot_be_are_refused(chosen, message):
    with pytest.raises(InvalidRequest, match=message):
        Ports(**chosen)


def test_no_fixed_port_lies_in_the_range_of_the_workers():
    ports = Ports()
    fixed = [
        getattr(ports, item.name) for item in fields(Ports) if not item.name.startswith("worker")
    ]
    assert not [port for port in fixed if ports.worker_min <= port <= ports.worker_max]


def test_the_mode_pipe_of_old_estimators_is_refused_where_it_is_written():
    with pytest.raises(InvalidRequest, match="mode.*'Pipe'"):
        Input("s3://bucket/x", mode="Pipe")


HEAD = InstanceGroup("head", "ml.m5.large", 1)
WORK = InstanceGroup("work", "ml.c5.xlarge", 2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": 0}, "count.*got 0"),
        ({"count": "2"}, "count.*'2'"),
        ({"silence_s": "9"}, "silence_s.*'9'"),
        ({"count": 2, "groups": [HEAD]}, "groups.*count"),
        (
            {"groups": [InstanceGroup(f"g{i}", "ml.m5.large", 1) for i in range(6)]},
            "instance groups.*got 6",
        ),
        ({"groups": [WORK, WORK]}, "work, work"),
        ({"groups": [HEAD, WORK], "head": "boss"}, "head='boss'.*head, work"),
        ({"alternatives": ["ml.c5.large"]}, "alternatives.*local, ml.c5.large"),
        (
            {"instance_type": "ml.c5.large", "alternatives": [f"ml.m{i}.large" for i in range(5)]},
            "alternatives.*at most 5",
        ),
        ({"coordinator_only": True}, "coordinator_only"),
        (
            {
                "instance_type": "ml.c5.large",
                "count": 3,
                "min_instances": 3,
                "alternatives": [Alternative("ml.c5.4xlarge", 2)],
            },
            "min_instances must be 1 to 2, got 3",
        ),
        ({"count": 2, "min_instances": 3}, "min_instances.*3"),
        ({"join_timeout_s": 0}, "join_timeout_s.*got 0"),
        ({"silence_s": 2.9}, r"silence_s.*2\.9"),
        ({"on_instance_loss": "cry"}, "on_instance_loss.*'cry'"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        Cluster(**fields)


def test_each_type_of_a_choice_is_a_way_of_its_own_to_have_the_instances():
    assert Cluster("ml.m5.large", count=2, alternatives=("ml.c5.large",)).choices == (
        {"ml.m5.large": 2},
        {"ml.c5.large": 2},
    )
    own = Cluster("ml.m5.large", count=4, alternatives=(Alternative("ml.m5.4xlarge", 1),))
    assert own.choices == ({"ml.m5.large": 4}, {"ml.m5.4xlarge": 1})
    assert (own.size, own.min_size) == (4, 1)
    groups = (InstanceGroup("a", "ml.m5.large", 1), InstanceGroup("b", "ml.m5.large", 2))
    assert Cluster(groups=groups).choices == ({"ml.m5.large": 3},)


@pytest.mark.parametrize("name", INSTANCE_KINDS)
def test_a_kind_is_found_by_its_name_and_by_the_image_that_names_it(name):
    kind = instance_kind(name)
    assert kind.name == name
    assert kind_of_image(kind.image) is kind


ROLE = "arn:aws:iam::123456789012:role/jobs"
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/raysm:cpu"
ARN = "arn:aws:sagemaker:eu-west-1:123456789012:processing-job/a job"


@pytest.mark.parametrize("python", ["3", "py312", "3.12.1", "2.7"])
def test_a_python_that_is_no_version_is_refused(python):
    with pytest.raises(InvalidRequest, match=f"python .*got {python!r}"):
        AWS(role=ROLE, python=python)


def test_a_bucket_is_a_name_and_no_address():
    with pytest.raises(InvalidRequest, match="'s3://acme/x'.*'acme'"):
        AWS(role=ROLE, bucket="s3://acme/x")


def test_the_image_says_the_kind_of_instance_unless_it_is_a_real_one():
    assert (Local().job_image(), Local().instance_kind_told()) == ("raysm/process:latest", None)
    docker = Local(instance_kind="docker", image=IMAGE)
    assert (docker.job_image(), docker.instance_kind_told()) == (IMAGE, "docker")
    with pytest.raises(InvalidRequest, match="docker.*--image"):
        Local(instance_kind="docker").job_image()


def test_a_job_on_aws_has_a_page_in_the_console():
    link = AWS(role=ROLE).console_link(ARN, "processing-jobs", "a job")
    assert link == (
        "https://eu-west-1.console.aws.amazon.com/sagemaker/home?region=eu-west-1#/processing-jobs/a%20job"
    )
    assert AWS(role=ROLE).console_link("", "jobs", "a") == ""
    assert Local().console_link(ARN, "jobs", "a") == ""


def test_a_target_says_what_it_is_in_another_region():
    assert AWS(role="arn:aws:iam::1:role/r").in_region("eu-west-1").region == "eu-west-1"
    assert Local(regions=("us-east-1", "eu-west-1")).in_region("eu-west-1").regions == (
        "eu-west-1",
    )


@pytest.mark.parametrize("regions", [(), ("Europe",), ("us-east-1", "")])
def test_regions_are_names_as_a_signature_has_them(regions):
    with pytest.raises(InvalidRequest, match=f"regions .*got {re.escape(repr(regions))}"):
        Local(regions=regions)


def test_a_program_of_the_account_reaches_it_by_its_own_role_and_home():
    assert AWS(role=ROLE, profile="mine").within("eu-west-1") == AWS(role=ROLE, region="eu-west-1")
    there = Local(home="/elsewhere", regions=("eu-west-1", "us-east-1")).within("us-east-1")
    assert there == Local(regions=("us-east-1", "eu-west-1"))


def test_the_cpus_of_an_emulated_instance_are_a_whole_number():
    with pytest.raises(InvalidRequest):
        Local(cpus=0)
