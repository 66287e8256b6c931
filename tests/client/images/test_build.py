import platform

import pytest
from moto import mock_aws

from raysm import __version__
from raysm.client.images.build import BuiltImage, ImageBuild, build_commands, build_image, check_build, tag_of
from raysm.client.python_version import python_version
from raysm.client.service import Service
from raysm.errors import InvalidRequest, ServiceError
from tests.support.sagemaker import ACCOUNT, REGION, SESSION, aws

HOST = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"


@pytest.fixture
def service_in():
    with mock_aws():
        made = {}

        def service(region):
            region = region or REGION
            client = made.setdefault(region, SESSION.client("ecr", region_name=region))
            return Service(aws(region=region), clients=lambda name: client)

        service.asked = made
        yield service


def never(region):
    raise AssertionError("AWS was not to be asked")


def commands(buildx=False, **fields):
    build = ImageBuild(**fields)
    return build_commands(build, tag_of(build, None), "CONTEXT", buildx=buildx)


def test_the_base_is_this_python_so_that_it_reads_what_is_pickled_here():
    (build,) = commands(platform="linux/amd64")
    assert build == (
        *("build", "--platform", "linux/amd64", "--build-arg", f"BASE_IMAGE=python:{python_version()}-slim"),
        *("--file", "CONTEXT/Dockerfile.cpu", "--tag", f"raysm:{__version__}-cpu", "CONTEXT"),
    )


def test_for_gpus_the_base_is_the_dockerfiles_own():
    (build,) = commands(gpu=True)
    assert "CONTEXT/Dockerfile.gpu" in build
    assert "--build-arg" not in build
    assert f"raysm:{__version__}-gpu" in build


def test_a_base_that_is_named_is_taken():
    assert f"BASE_IMAGE={DLC}" in commands(base=DLC)[0]


def test_the_newer_builder_makes_one_image_and_loads_it():
    (build,) = commands(buildx=True)
    assert build[:5] == ("buildx", "build", "--load", "--provenance=false", "--sbom=false")


def test_a_platform_is_named_where_this_machine_is_no_intel():
    is_intel = platform.machine() in ("x86_64", "AMD64")
    assert ImageBuild().target_platform == (None if is_intel else "linux/amd64")
    assert ImageBuild(platform="linux/arm64").target_platform == "linux/arm64"


def test_a_push_is_a_second_command():
    assert commands(push=True, tag="a:1")[1] == ("push", "a:1")


@pytest.mark.parametrize(
    ("tag", "called"),
    [(None, f"{HOST}/raysm:{__version__}-cpu"), ("team/x:1", f"{HOST}/team/x:1"), (f"{HOST}/y:2", f"{HOST}/y:2")],
)
def test_a_tag_gets_the_registry_unless_it_has_one(tag, called):
    assert tag_of(ImageBuild(tag=tag), HOST) == called


@pytest.mark.parametrize("tag", ["Big:1", "a b", ":1", "x:", f"{HOST}/Big", "docker.io/../x", "-x:1"])
def test_a_tag_that_cannot_be_is_refused_before_the_build(tag):
    with pytest.raises(InvalidRequest, match="--tag is NAME:TAG"):
        check_build(ImageBuild(tag=tag))


def test_a_build_that_stays_here_asks_nobody(recorded):
    built = build_image(ImageBuild(tag="mine:1"), recorded.docker, never)
    assert built == BuiltImage(uri="mine:1", python="3.12")
    assert recorded.told("push") == recorded.told("login") == []
    (build,) = (call for call in recorded.calls if call["arguments"][0] == "build")
    assert build["files"] == ["Dockerfile.cpu", "PACKAGE.md", "pyproject.toml", "raysm"]


def test_a_push_makes_the_repository_and_logs_in_by_stdin(recorded, service_in):
    built = build_image(ImageBuild(push=True, tag="team/raysm:1"), recorded.docker, service_in)
    assert built == BuiltImage(uri=f"{HOST}/team/raysm:1", python="3.12", made_repository=True)
    listed = service_in(None).call("ecr", "describe_repositories")["repositories"]
    assert [item["repositoryName"] for item in listed] == ["team/raysm"]
    words = [call["arguments"][0] for call in recorded.calls]
    assert words == ["version", "login", "buildx", "build", "run", "push"]
    (login,) = (call for call in recorded.calls if call["arguments"][0] == "login")
    assert login["arguments"][-1] == HOST
    assert login["stdin"]
    assert not any(login["stdin"] in argument for call in recorded.calls for argument in call["arguments"])
    assert recorded.told("push") == [["push", f"{HOST}/team/raysm:1"]]


def test_a_base_of_aws_own_is_logged_in_to_in_its_region(recorded, service_in):
    build_image(ImageBuild(base=DLC, tag="mine:1"), recorded.docker, service_in)
    assert [arguments[-1] for arguments in recorded.told("login")] == [DLC.partition("/")[0]]
    assert list(service_in.asked) == ["us-east-1"]


def test_a_uri_of_another_region_is_pushed_there(recorded, service_in):
    there = HOST.replace(REGION, "us-west-2")
    built = build_image(ImageBuild(push=True, tag=f"{there}/raysm:1"), recorded.docker, service_in)
    assert (built.uri, built.made_repository) == (f"{there}/raysm:1", True)
    assert list(service_in.asked) == ["us-west-2"]


def test_in_another_accounts_registry_no_repository_is_made(recorded, service_in):
    other = HOST.replace(ACCOUNT, "999999999999")
    built = build_image(ImageBuild(push=True, tag=f"{other}/raysm:1"), recorded.docker, service_in)
    assert not built.made_repository
    assert service_in(None).call("ecr", "describe_repositories")["repositories"] == []


def test_a_build_that_fails_is_not_pushed(recorded, service_in):
    recorded.answer(build={"code": 1}, buildx={"code": 1})
    with pytest.raises(ServiceError, match="docker build failed"):
        build_image(ImageBuild(push=True), recorded.docker, service_in)
    assert recorded.told("push") == []


def test_a_daemon_that_is_down_is_said_before_aws_is_asked(recorded):
    recorded.answer(version={"code": 1, "stderr": "Cannot connect"})
    with pytest.raises(ServiceError, match="daemon does not answer"):
        build_image(ImageBuild(push=True), recorded.docker, never)
