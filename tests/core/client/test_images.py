"""Images on AWS: the default image, the table of AWS's images, and what names say."""

import re

import pytest

from raysm.core.client.images import check_python, default_image, images, registry_of, with_image
from raysm.core.request import Cluster, InstanceGroup, JobRequest
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from tests import aws_images
from tests.support.sagemaker import aws

AWS_OWN = "763104351884.dkr.ecr.eu-west-1.amazonaws.com"


def tag(cluster, region="eu-west-1", python=None):
    return default_image(cluster, region, python)[0].tag


def request(workload=None, **cluster):
    return JobRequest(
        name="job",
        workload=workload or Script("a.py"),
        cluster=Cluster(**{"instance_type": "ml.m5.large"} | cluster),
    )


def test_cpus_and_gpus_have_an_image_each():
    assert "-cpu-" in tag(Cluster("ml.c5.4xlarge"))
    assert "-cu" in tag(Cluster("ml.g5.xlarge"))
    groups = (InstanceGroup("head", "ml.m5.large", 1), InstanceGroup("gpus", "ml.g5.xlarge", 2))
    assert "-cu" in tag(Cluster(groups=groups))


def test_a_region_without_images_is_refused_with_the_remedy():
    with pytest.raises(InvalidRequest, match=r"'xx-north-1'.*AWS\(image=…\)"):
        default_image(Cluster("ml.m5.large"), "xx-north-1")
    with pytest.raises(InvalidRequest, match="'eu-west1'.* eu-west-1"):
        default_image(Cluster("ml.m5.large"), "eu-west1")


@pytest.mark.parametrize(
    ("instance_type", "reason"),
    [
        ("ml.trn1.32xlarge", "AWS Neuron"),
        ("ml.m7g.large", "ARM"),
        ("ml.p3.2xlarge", "CUDA 13"),
    ],
)
def test_instances_on_which_none_runs_are_refused(instance_type, reason):
    with pytest.raises(InvalidRequest, match=f"{instance_type} .*{reason}.*--image"):
        default_image(Cluster(instance_type), "us-east-1")


def test_the_newest_that_can_read_the_pickle_is_taken():
    assert "py313" in tag(Cluster("ml.m5.large"), python="3.13")
    assert tag(Cluster("ml.m5.large"), python="3.12") == tag(Cluster("ml.m5.large"))
    assert (
        "py313"
        in with_image(aws(image=None, python="3.13"), request(), lambda: "eu-west-1")[0].image
    )
    with pytest.raises(InvalidRequest, match=r"3\.12, 3\.13, not 3\.11.*python='3\.11'"):
        tag(Cluster("ml.m5.large"), python="3.11")


def test_what_was_taken_is_said():
    target, said = with_image(aws(image=None), request(), lambda: "eu-west-1")
    assert target.image.startswith(f"{AWS_OWN}/pytorch:")
    assert target.python == "3.12"
    assert said.startswith(target.image)
    assert re.search(
        r"AWS's PyTorch \d\.\d+ for CPUs, Python 3\.12\), since no image is named", said
    )


def test_a_python_that_raysm_does_not_run_on_is_refused_before_an_instance_is():
    old = f"{AWS_OWN}/pytorch-training:2.2.0-cpu-py310-ubuntu20.04-sagemaker"
    with pytest.raises(InvalidRequest, match=r"Python 3\.10.* 3\.11"):
        check_python(Script("a.py"), aws(image=old))


def test_registries_and_images_are_those_of_the_sdks_tables():
    """What stands in the table is what the script makes of the SDK; a newer SDK may have more."""
    pytest.importorskip("sagemaker")
    made = aws_images.made()
    assert all(made["registries"][region] == registry_of(region) for region in made["registries"])
    kept = [(item["repository"], item["tag"]) for item in made["images"]]
    assert kept == [(image.repository, image.tag) for image in images()]
