"""``raysm image``."""

import pytest

from raysm.cli.main import main


@pytest.mark.parametrize(
    ("argv", "kind", "registry"),
    [
        (["--region", "eu-west-1"], "cpu", "763104351884.dkr.ecr.eu-west-1.amazonaws.com"),
        (["--region", "cn-north-1", "--gpu"], "gpu", "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_the_commands_build_on_awss_image_of_the_region_and_push_to_ones_own(argv, kind, registry, capsys):
    assert main(["image", *argv]) == 0
    commands = capsys.readouterr().out
    assert f"-f containers/Dockerfile.{kind} --build-arg BASE_IMAGE={registry}/pytorch:" in commands
    assert f"docker push ACCOUNT{registry[12:]}/raysm:{kind}" in commands
