"""Inputs that cannot fit onto a volume are refused before anything is uploaded, and nothing else is."""

import pytest

from raysm.client.checks import GIB, check_volume
from raysm.client.service import Service
from raysm.client.submit import submit
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, InstanceGroup, JobRequest, Script
from tests.support.crowd import Crowd

SHARED = Input("s3://b/x", distribution="ShardedByS3Key")


def request(cluster, kind="training", **inputs):
    return JobRequest(name="a", workload=Script("x.py"), cluster=cluster, inputs=inputs, kind=kind)


def test_inputs_larger_than_the_volume_are_refused_with_the_size_that_would_do():
    asked = request(Cluster("ml.m5.large", volume_gb=100), x=Input("s3://b/x"), y=Input("s3://b/y"))
    check_volume(asked, {"x": 60 * GIB, "y": 40 * GIB})
    with pytest.raises(InvalidRequest, match=r"take 101.0 GB of each ml.m5.large, .* has 100 GB; .*127.*Fast"):
        check_volume(asked, {"x": 60 * GIB, "y": 41 * GIB})


def test_a_processing_job_is_not_told_to_stream():
    asked = request(Cluster("ml.m5.large"), kind="processing", x=Input("s3://b/x"))
    with pytest.raises(InvalidRequest) as caught:
        check_volume(asked, {"x": 31 * GIB})
    assert "FastFile" not in str(caught.value)


def test_what_is_streamed_shared_or_not_known_takes_no_room_or_its_share():
    check_volume(request(Cluster("ml.m5.large"), x=Input("s3://b/x", mode="FastFile")), {"x": 900 * GIB})
    check_volume(request(Cluster("ml.m5.large", count=4), x=SHARED), {"x": 120 * GIB})
    check_volume(request(Cluster("ml.m5.large"), x=Input("s3://b/x")), {})
    with pytest.raises(InvalidRequest, match="take 30.2 GB"):
        check_volume(request(Cluster("ml.m5.large", count=4), x=SHARED), {"x": 121 * GIB})


def test_disks_of_the_instances_own_count_in_place_of_the_volume():
    check_volume(request(Cluster("ml.g5.xlarge"), x=Input("s3://b/x")), {"x": 200 * GIB})
    with pytest.raises(InvalidRequest, match="whose volume has 250 GB; take a larger type"):
        check_volume(request(Cluster("ml.g5.xlarge"), x=Input("s3://b/x")), {"x": 251 * GIB})
    check_volume(request(Cluster("ml.p5.48xlarge"), x=Input("s3://b/x")), {"x": 9000 * GIB})


def test_inputs_have_to_fit_onto_whichever_type_the_service_takes():
    cluster = Cluster("ml.m5.large", volume_gb=400, alternatives=("ml.g5.xlarge",))
    check_volume(request(cluster, x=Input("s3://b/x")), {"x": 200 * GIB})
    with pytest.raises(InvalidRequest, match="of each ml.g5.xlarge, whose volume has 250 GB"):
        check_volume(request(cluster, x=Input("s3://b/x")), {"x": 300 * GIB})


def test_of_groups_those_count_that_get_the_channel():
    groups = (InstanceGroup("head", "ml.m5.large", 1), InstanceGroup("gpu", "ml.g5.xlarge", 2))
    cluster = Cluster(groups=groups)
    check_volume(request(cluster, x=Input("s3://b/x", groups=("gpu",))), {"x": 100 * GIB})
    with pytest.raises(InvalidRequest, match="of each ml.m5.large"):
        check_volume(request(cluster, x=Input("s3://b/x", groups=("gpu", "head"))), {"x": 100 * GIB})


def test_a_job_for_aws_is_checked_before_anything_is_uploaded_and_one_of_this_machine_is_not(remote, local, tmp_path):
    script = tmp_path / "x.py"
    script.write_text("")
    (tmp_path / "large.bin").touch()
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(40 * GIB)
    submit(Script(str(script)), on=local.service, inputs={"x": tmp_path / "large.bin"})
    crowd = Crowd(5, behind=remote.s3, size=7 * GIB)
    clients = {**remote.clients, "s3": crowd}
    service = Service(remote.service.target, clients=clients.__getitem__, polling=remote.service.polling)
    with pytest.raises(InvalidRequest, match="take 35.0 GB of each ml.m5.large, whose volume has 30 GB"):
        submit(Script(str(script)), cluster=Cluster("ml.m5.large"), on=service, inputs={"x": "s3://crowd/x/"})
    assert not [name for name, _ in remote.s3.calls if name == "put_object"]
