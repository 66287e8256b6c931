"""Every limit of the API: the value at it passes, the value past it is refused before anything is uploaded."""

from types import SimpleNamespace

import pytest

from raysm.core.client.checks import GIB, check, check_inputs, check_ray, check_volume
from raysm.core.client.plan import Plan, plan
from raysm.core.client.service import Service
from raysm.core.client.submit import submit
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import (
    Cluster,
    Input,
    InstanceGroup,
    JobRequest,
    Limits,
    MetricDefinition,
    Security,
)
from raysm.errors import InvalidInput, InvalidRequest
from raysm.features.script.request import Script
from tests.support.api_requests import training_parameters
from tests.support.crowd import Crowd
from tests.support.sagemaker import aws, places_of

SHARED = Input("s3://b/x", distribution="ShardedByS3Key")


def request(cluster, kind="training", **inputs):
    return JobRequest(name="a", workload=Script("x.py"), cluster=cluster, inputs=inputs, kind=kind)


def test_inputs_larger_than_the_volume_are_refused_with_the_size_that_would_do():
    asked = request(Cluster("ml.m5.large", volume_gb=100), x=Input("s3://b/x"), y=Input("s3://b/y"))
    check_volume(asked, {"x": 60 * GIB, "y": 40 * GIB})
    with pytest.raises(InvalidRequest, match=r"101\.0 GB.*ml\.m5\.large.*100 GB.*127.*FastFile"):
        check_volume(asked, {"x": 60 * GIB, "y": 41 * GIB})


def test_what_is_streamed_shared_or_not_known_takes_no_room_or_its_share():
    check_volume(
        request(Cluster("ml.m5.large"), x=Input("s3://b/x", mode="FastFile")), {"x": 900 * GIB}
    )
    check_volume(request(Cluster("ml.m5.large", count=4), x=SHARED), {"x": 120 * GIB})
    check_volume(request(Cluster("ml.m5.large"), x=Input("s3://b/x")), {})
    with pytest.raises(InvalidRequest, match=r"30\.2 GB"):
        check_volume(request(Cluster("ml.m5.large", count=4), x=SHARED), {"x": 121 * GIB})


@pytest.mark.parametrize(
    "name", ["ml.p6-b200.48xlarge", "ml.p6-b300.48xlarge", "ml.p9-c400.48xlarge"]
)
def test_inputs_are_not_refused_for_a_room_that_is_not_known(name):
    check_volume(request(Cluster(name), x=Input("s3://b/x")), {"x": 900 * GIB})


def test_inputs_have_to_fit_onto_whichever_type_the_service_takes():
    cluster = Cluster("ml.m5.large", volume_gb=400, alternatives=("ml.g5.xlarge",))
    check_volume(request(cluster, x=Input("s3://b/x")), {"x": 200 * GIB})
    with pytest.raises(InvalidRequest, match=r"ml\.g5\.xlarge.*250 GB"):
        check_volume(request(cluster, x=Input("s3://b/x")), {"x": 300 * GIB})


def test_a_job_for_aws_is_checked_before_anything_is_uploaded_and_one_of_this_machine_is_not(
    remote, local, tmp_path
):
    script = tmp_path / "x.py"
    script.write_text("")
    (tmp_path / "large.bin").touch()
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(40 * GIB)
    submit(Script(str(script)), on=local.service, inputs={"x": tmp_path / "large.bin"})
    crowd = Crowd(5, behind=remote.s3, size=7 * GIB)
    clients = {**remote.clients, "s3": crowd}
    service = Service(
        remote.service.target, clients=clients.__getitem__, polling=remote.service.polling
    )
    with pytest.raises(InvalidRequest, match=r"35\.0 GB.*ml\.m5\.large.*30 GB"):
        submit(
            Script(str(script)),
            cluster=Cluster("ml.m5.large"),
            on=service,
            inputs={"x": "s3://crowd/x/"},
        )
    assert not [name for name, _ in remote.s3.calls if name == "put_object"]


@pytest.mark.parametrize(
    "line", ["ray==2.52.1", "ray[default] == 2.50.*", "Ray<2.53", "ray>=2.61", "ray~=2.50.0"]
)
def test_another_ray_is_refused_with_the_one_that_will_do(line):
    with pytest.raises(InvalidRequest, match=r"ray>=2\.53,<2\.61"):
        check_ray(["tqdm", line])


@pytest.mark.parametrize(
    "line", ["ray[train]>=2.50,<2.54", "rayleigh==2.50", "ray==2.50; python_version < '3.9'"]
)
def test_what_leaves_room_for_raysm_s_ray_passes(line):
    check_ray([line])


def checked(target=None, tags=None, **fields):
    fields = {
        "name": "job",
        "workload": Script("train.py"),
        "cluster": Cluster("ml.m5.large"),
    } | fields
    places = places_of(aws())
    check(
        plan(JobRequest(**fields), target=target or aws(), places=places, tags=tags),
        takes_files=False,
    )


def many(count, value="v"):
    return {f"k{index}": value for index in range(count)}


def channels(count):
    return {f"c{index}": Input("s3://b/x") for index in range(count)}


def groups(count, name="g"):
    return Cluster(
        groups=tuple(InstanceGroup(f"{name}{index}", "ml.m5.large", 1) for index in range(count))
    )


AT_AND_PAST = {
    "hyperparameters": lambda past: {"hyperparameters": many(100 + past)},
    "length of a hyperparameter's value": lambda past: {
        "hyperparameters": {"k": "v" * (2500 + past)}
    },
    "channels, raysm's own among them": lambda past: {"inputs": channels(19 + past)},
    "length of a URI": lambda past: {"inputs": {"x": Input("s3://b/" + "x" * (1017 + past))}},
    "Processing: inputs, raysm's own among them": lambda past: {
        "kind": "processing",
        "inputs": channels(9 + past),
    },
    "Processing: instances": lambda past: {
        "kind": "processing",
        "cluster": Cluster("ml.m5.large", count=100 + past),
    },
    "Processing: runtime": lambda past: {
        "kind": "processing",
        "limits": Limits(max_runtime_s=777_600 + past),
    },
    "length of the name": lambda past: {"name": "n" * (63 + past)},
    "wait shorter than the runtime": lambda past: {
        "limits": Limits(spot=True, max_runtime_s=100, max_wait_s=100 - past)
    },
    "warm pool": lambda past: {"cluster": Cluster("ml.m5.large", keep_alive_s=21_600 + past)},
}


@pytest.mark.parametrize("limit", AT_AND_PAST)
def test_the_value_at_a_limit_passes_and_one_past_it_is_refused(limit):
    checked(**AT_AND_PAST[limit](0))
    with pytest.raises(InvalidRequest):
        checked(**AT_AND_PAST[limit](1))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ml.c5.4xlrage", "ml.c5.4xlarge"),
        ("ml.p4d.24xlage", "ml.p4d.24xlarge"),
        ("m5.xlarge", "ml.m5.xlarge"),
    ],
)
def test_a_mistyped_instance_type_suggests_the_nearest(typed, meant):
    with pytest.raises(
        InvalidRequest, match=rf"ResourceConfig\.InstanceType is '{typed}'.* {meant}"
    ):
        checked(cluster=Cluster(typed))


@pytest.mark.parametrize(
    "name", ["ml.m9i.48xlarge", "ml.p99-b900.48xlarge", "ml.u9n.metal-24xl", "ml.t9g.medium"]
)
@pytest.mark.parametrize("kind", ["training", "processing"])
def test_a_type_that_is_newer_than_botocore_passes_with_a_warning(name, kind, caplog):
    with caplog.at_level("WARNING", logger="raysm"):
        checked(kind=kind, cluster=Cluster(name))
    (record,) = caplog.records
    assert name in record.getMessage()
    assert "update boto3" in record.getMessage()


@pytest.mark.parametrize(
    "fields",
    [
        {"tags": {"a#b": "v"}},
        {"security": Security(output_kms_key="ключ")},
        {"metrics": (MetricDefinition("m", "loss\n(x)"),)},
        {"inputs": {"x": Input("s3://b/x\ny", groups=("g\n0",))}, "cluster": groups(1, "g\n")},
    ],
    ids=["tag", "key", "line break", "channel of a group"],
)
def test_what_does_not_match_the_apis_pattern_is_refused(fields):
    with pytest.raises(InvalidRequest, match="must match"):
        checked(**fields)


def test_what_the_api_does_not_know_or_misses_is_refused():
    with pytest.raises(InvalidRequest, match="Nonsense.*botocore"):
        check(Plan(api=TRAINING, request=training_parameters(Nonsense=1)), takes_files=False)
    with pytest.raises(InvalidRequest, match="RoleArn is missing"):
        check(Plan(api=TRAINING, request=training_parameters(RoleArn=None)), takes_files=False)


def show(workload, paths):
    """Say what was shown."""
    raise InvalidInput(repr(sorted(paths.items())))


def test_inputs_of_this_machine_are_shown_to_the_check_of_a_workload_as_paths_and_others_as_unknown(
    tmp_path,
):
    inputs = {
        "a": Input(str(tmp_path / "x")),
        "b": Input((tmp_path / "y").as_uri()),
        "c": Input("s3://b/z"),
    }
    with pytest.raises(InvalidInput) as caught:
        check_inputs(SimpleNamespace(input_check=f"{__name__}:show"), inputs)
    assert str(caught.value) == repr([("a", tmp_path / "x"), ("b", tmp_path / "y"), ("c", None)])
    # Without the packages of a check, the job itself will check.
    for name in (None, "a_package_that_is_not_here:check"):
        check_inputs(SimpleNamespace(input_check=name), inputs)
