"""Images and torches whose CUDA has no code for the GPUs of the instances, before they are billed."""

import logging
from pathlib import Path

import pytest

from raysm.core.client.cuda import check_cuda
from raysm.core.client.submit import prepare
from raysm.core.request import Cluster, InstanceGroup
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from tests.support.pages import outputs
from tests.support.sagemaker import ACCOUNT, aws

AWS_OWN = "763104351884.dkr.ecr.eu-west-1.amazonaws.com"
OWN = f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/mine"
CUDA_12_1 = f"{AWS_OWN}/pytorch-training:2.3.0-gpu-py311-cu121-ubuntu20.04-sagemaker"
CUDA_13_3 = f"{AWS_OWN}/pytorch:2.13-cu133-amzn2023-sagemaker"
# Its tag does not name CUDA; the table of AWS's images does.
CUDA_13_0 = f"{AWS_OWN}/pytorch-training:2.9.0-gpu-py312"


def check(instance_type, image, *requirements, wheels=(), **cluster):
    check_cuda(Cluster(instance_type, **cluster), image, requirements, map(Path, wheels))


@pytest.mark.parametrize(
    ("instance_type", "image", "said"),
    [
        ("ml.p6-b200.48xlarge", CUDA_12_1, r"B200.*10\.0.*CUDA 12\.8 or later.*CUDA 12\.1"),
        ("ml.g7e.2xlarge", CUDA_12_1, r"RTX PRO 6000.*12\.0.*CUDA 12\.8 or later"),
        ("ml.p3.2xlarge", CUDA_13_3, r"V100.*7\.0.*CUDA 9\.0 to 12\.x.*CUDA 13\.3"),
        ("ml.p3dn.24xlarge", CUDA_13_0, r"V100.*CUDA 13\.0"),
        ("ml.g5.xlarge", f"{AWS_OWN}/pytorch:2.13-cpu-amzn2023-sagemaker", "A10G.*is for CPUs"),
    ],
)
def test_image_of_aws_without_code_for_the_gpus_is_refused(instance_type, image, said):
    with pytest.raises(InvalidRequest, match=said) as refusal:
        check(instance_type, image)
    assert "--allow-cpu" in refusal.value.remedy
    check(instance_type, image, allow_cpu=True)


@pytest.mark.parametrize(
    ("instance_type", "image"),
    [
        ("ml.p6-b200.48xlarge", CUDA_13_3),
        ("ml.p5.48xlarge", CUDA_12_1),
        # Code for Ampere runs on Ada.
        ("ml.g6.xlarge", f"{AWS_OWN}/pytorch-training:1.13.1-gpu-py311-cu117-ubuntu20.04"),
        ("ml.g4dn.xlarge", CUDA_13_3),
        ("ml.p3.2xlarge", CUDA_12_1),
        ("ml.m5.large", CUDA_13_3),
        ("ml.p9-c400.48xlarge", CUDA_12_1),
        ("ml.p6-b200.48xlarge", f"{OWN}:latest"),
        # TensorFlow's wheels have code that newer GPUs compile for themselves.
        (
            "ml.p6-b200.48xlarge",
            f"{AWS_OWN}/tensorflow-training:2.19.0-gpu-py312-cu125-ubuntu22.04",
        ),
    ],
)
def test_image_that_fits_or_is_unknown_is_taken(instance_type, image, caplog):
    check(instance_type, image)
    assert not caplog.records


def test_all_types_of_a_cluster_are_looked_at():
    with pytest.raises(InvalidRequest, match=r"ml\.p3\.2xlarge"):
        check("ml.g5.xlarge", CUDA_13_3, alternatives=("ml.p3.2xlarge",))
    groups = (InstanceGroup("a", "ml.g5.xlarge", 1), InstanceGroup("b", "ml.p3.2xlarge", 1))
    with pytest.raises(InvalidRequest, match=r"ml\.p3\.2xlarge"):
        check_cuda(Cluster(groups=groups), CUDA_13_3, ())


@pytest.mark.parametrize("tag", ["cu121", "2.8.0-cuda12.4-cudnn9-runtime", "train-cu118"])
def test_tag_of_an_own_image_is_a_warning_only(tag, caplog):
    with caplog.at_level(logging.WARNING, "raysm"):
        check("ml.p6-b200.48xlarge", f"{OWN}:{tag}")
    (record,) = caplog.records
    assert f"the tag of the image {OWN}:{tag} has CUDA 1" in record.getMessage()
    assert "take an image or a torch for CUDA 12.8 or later" in record.getMessage()


def warning(caplog, *arguments, **more):
    """Return the only warning of a check."""
    with caplog.at_level(logging.WARNING, "raysm"):
        check(*arguments, **more)
    (record,) = caplog.records
    return record.getMessage()


def test_other_images_of_aws_with_torch_are_a_warning_only(caplog):
    image = f"{AWS_OWN}/huggingface-pytorch-training:2.1.0-gpu-py310-cu121-ubuntu20.04"
    assert "has CUDA 12.1" in warning(caplog, "ml.p6-b200.48xlarge", image)


@pytest.mark.parametrize(
    ("requirements", "wheels"),
    [
        (["vllm==0.10.0"], []),
        (["git+https://example.com/model.git"], []),
        ([], ["model-1.0-py3-none-any.whl"]),
    ],
)
def test_requirement_that_may_bring_a_torch_makes_the_image_a_warning(requirements, wheels, caplog):
    # Each warning is logged once, so that each case needs an image of its own.
    image = f"{CUDA_12_1}-{len(repr(requirements))}"
    message = warning(caplog, "ml.p6-b200.48xlarge", image, *requirements, wheels=wheels)
    assert "unless a requirement brings another torch, has CUDA 12.1" in message


@pytest.mark.parametrize(
    ("requirements", "wheels"),
    [
        (["# packages of uv.lock", "pandas==2.2.0 --hash=sha256:00"], []),
        ([], ["ray-2.60.0-cp311-cp311-manylinux2014_x86_64.whl"]),
    ],
)
def test_image_is_certain_beside_packages_that_bring_no_torch(requirements, wheels):
    with pytest.raises(InvalidRequest, match=r"CUDA 12\.1"):
        check("ml.p6-b200.48xlarge", CUDA_12_1, *requirements, wheels=wheels)


def test_warning_is_logged_once_for_all_rows_of_a_grid(caplog):
    with caplog.at_level(logging.WARNING, "raysm"):
        for _ in range(3):
            check("ml.p6-b200.48xlarge", f"{OWN}:rows-cu121")
    assert len(caplog.records) == 1


def test_runtime_beside_a_torch_of_the_images_release_is_a_warning_since_pip_keeps_the_image_s(
    caplog,
):
    requirements = ("torch==2.13.0", "nvidia-cuda-runtime-cu12==12.4.127")
    assert "has CUDA 12.4" in warning(caplog, "ml.p6-b200.48xlarge", CUDA_13_3, *requirements)


@pytest.mark.parametrize(
    ("instance_type", "holds", "does_not"),
    [
        ("ml.p6-b200.48xlarge", "python_version >= '3.12'", "python_version < '3.12'"),
        ("ml.p6-b200.48xlarge", "python_full_version >= '3.12'", "python_full_version < '3.12'"),
        ("ml.p6-b200.48xlarge", "platform_machine == 'x86_64'", "platform_machine == 'aarch64'"),
        ("ml.p6e-gb200.36xlarge", "platform_machine == 'aarch64'", "platform_machine == 'x86_64'"),
    ],
)
def test_markers_are_those_of_the_instance_and_not_of_the_client(instance_type, holds, does_not):
    image = f"{AWS_OWN}/pytorch-training:2.9.0-gpu-py312-cu130-ubuntu22.04"
    check(instance_type, image, f"torch==2.6.0+cu124 ; {does_not}")
    with pytest.raises(InvalidRequest, match=r"torch==2\.6\.0\+cu124 has CUDA 12\.4"):
        check(instance_type, image, f"torch==2.6.0+cu124 ; {holds}")


def test_marker_on_an_unknown_python_is_left_to_the_instance(caplog):
    check("ml.p6-b200.48xlarge", f"{OWN}:latest", "torch==2.6.0+cu124 ; python_version > '3'")
    assert not caplog.records


@pytest.mark.parametrize(
    ("requirements", "said"),
    [
        (["torch==2.7.1+cu118"], r"torch==2\.7\.1\+cu118 has CUDA 11\.8"),
        (["torch==2.7.1+cpu"], r"torch==2\.7\.1\+cpu is for CPUs"),
        (["torch===2.7.1+cu118"], r"torch==2\.7\.1\+cu118 has CUDA 11\.8"),
        (
            ["torch @ https://example.com/whl/torch-2.8.0%2Bcu126-cp312-cp312-linux_x86_64.whl"],
            r"torch @ https://example\.com.* has CUDA 12\.6",
        ),
        (
            ["torch @ https://example.com/whl/torch-2.8.0+cpu-cp312-cp312-linux_x86_64.whl"],
            "torch-2.8.0.cpu-cp312-cp312-linux_x86_64.whl is for CPUs",
        ),
        # What a lock names, with torch's own version without a word on CUDA.
        (
            [
                "torch==2.6.0 --hash=sha256:00",
                "nvidia-cuda-runtime-cu12==12.4.127 --hash=sha256:00",
            ],
            r"nvidia-cuda-runtime-cu12==12\.4\.127 has CUDA 12\.4",
        ),
        (
            ["torch==2.6.0+cpu; sys_platform == 'darwin'", "torch==2.6.0+cu124"],
            r"torch==2\.6\.0\+cu124 has CUDA 12\.4",
        ),
    ],
)
def test_required_torch_counts_and_not_the_image(requirements, said):
    with pytest.raises(InvalidRequest, match=said):
        check("ml.p6-b200.48xlarge", CUDA_13_3, *requirements)


def test_torch_that_travels_as_a_wheel_counts():
    wheel = "torch-2.6.0+cu124-cp312-cp312-linux_x86_64.whl"
    with pytest.raises(InvalidRequest, match=r"CUDA 12\.4"):
        check("ml.p6-b200.48xlarge", CUDA_13_3, wheels=[wheel])


def test_page_shows_the_refusal():
    with pytest.raises(InvalidRequest) as refusal:
        check("ml.p6-b200.48xlarge", CUDA_13_3, "torch==2.7.1+cu118")
    assert outputs("guides/account-image.md") == [f"raysm: {refusal.value}"]


@pytest.mark.parametrize(
    "requirements",
    [
        ["torch==2.6.0"],
        ["torch<2.9"],
        ["torch!=2.7.1+cpu"],
        ["torch>=2.7.1+cu118", "nvidia-cuda-runtime-cu12==12.4.127"],
        ["torch==2.7.*", "nvidia-cuda-runtime-cu12==12.4.127"],
        ["torch @ https://example.com/whl/torch-2.8.0-cp312-cp312-linux_x86_64.whl"],
        ["torch==2.6.0+cu130; platform_release == '6'"],
        [
            "torch==2.6.0",
            "nvidia-cuda-runtime-cu12==12.4.127",
            "nvidia-cuda-runtime==13.0.96",
        ],
        ["torch==2.6.0+cu124; sys_platform == 'win32'", "torch==2.6.0; sys_platform == 'linux'"],
    ],
)
def test_required_torch_whose_cuda_is_unknown_is_left_to_the_instance(requirements, caplog):
    for instance_type in ("ml.p3.2xlarge", "ml.p6-b200.48xlarge"):
        check(instance_type, CUDA_13_3, *requirements)
    assert not caplog.records


def test_runtime_without_a_required_torch_says_nothing_of_torch():
    requirement = "nvidia-cuda-runtime-cu12==12.1.105"
    check("ml.p6-b200.48xlarge", CUDA_13_3, requirement)
    check("ml.p6-b200.48xlarge", f"{OWN}:latest", requirement)


def test_job_is_refused_before_anything_is_sent(tmp_path):
    (tmp_path / "a.py").touch()
    target = aws(image=CUDA_12_1, bucket="b")
    script = Script(str(tmp_path / "a.py"))
    with pytest.raises(InvalidRequest, match=r"B200.*CUDA 12\.8"):
        prepare(script, on=target, cluster=Cluster("ml.p6-b200.48xlarge"))
