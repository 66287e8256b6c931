"""``raysm image build``: an image for jobs, made by docker, and what to name it as."""

import json
import shlex
import shutil
import sys

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.choosing import NO_ROLE, read_settings
from raysm.client.images import ecr
from raysm.client.images.build import BuiltImage, ImageBuild, build_commands, build_image, check_build, tag_of
from raysm.client.images.docker import Docker
from raysm.client.service import Service
from raysm.request import AWS

__all__ = ["run"]

CONTEXT = "CONTEXT"
"""Stands for the folder that is made for the build, and removed behind it."""


def run(arguments: Arguments, console: Console) -> None:
    """Build, or print how it would be built.

    Raises:
        InvalidRequest: What was asked for cannot be.
        MissingDependency: docker is not installed.
        ServiceError: docker or Amazon ECR refused.
    """
    build = ImageBuild(
        base=arguments.base,
        gpu=arguments.gpu,
        tag=arguments.tag,
        platform=arguments.platform,
        push=arguments.push,
    )
    chosen = read_settings(arguments).table("aws")

    # A function: a build without any image of ECR asks nothing of AWS, not even for credentials.
    def service_in(region: str | None) -> Service:
        return Service(AWS(role=NO_ROLE, region=region or chosen.get("region"), profile=chosen.get("profile")))

    if arguments.dry_run:
        _print_commands(build, service_in(None))
        return
    built = build_image(build, Docker(), service_in)
    if arguments.json:
        print(json.dumps({"image": built.uri, "python": built.python, "pushed": build.push}, indent=1))
        return
    for line in _words(build, built):
        console.print(Text(line), soft_wrap=True, highlight=False)


def _print_commands(build: ImageBuild, service: Service) -> None:
    """Print what would be run; of AWS only the name of the registry is asked, and nothing is made there."""
    # As the build itself begins: what is printed here is to be what can be run.
    check_build(build)
    named = ecr.registry_in(build.tag or "")
    host = None if not build.push else named.host if named is not None else ecr.log_in_to(service).host
    tag = tag_of(build, host)
    lines = []
    if build.push:
        # The whole pipe, for the password is no part of an argument here either.
        region = service.region if named is None else named.region
        lines += [
            f"aws ecr describe-repositories --region {region} --repository-names {_name(tag)} "
            f"|| aws ecr create-repository --region {region} --repository-name {_name(tag)}",
            f"aws ecr get-login-password --region {region} | docker login --username AWS --password-stdin {host}",
        ]
    base = ecr.registry_in(build.base or "")
    if base is not None and base.host != host:
        lines.append(
            f"aws ecr get-login-password --region {base.region} "
            f"| docker login --username AWS --password-stdin {base.host}"
        )
    # Printed also where there is no docker to ask.
    buildx = shutil.which("docker") is not None and Docker().has_buildx()
    lines += [shlex.join(("docker", *command)) for command in build_commands(build, tag, CONTEXT, buildx=buildx)]
    print("\n".join(lines))
    # stdout has the commands alone, which a shell may run.
    print(f"{CONTEXT}: a folder with raysm and its Dockerfile, made for the build", file=sys.stderr)


def _name(tag: str) -> str:
    repository = ecr.registry_in(tag)
    assert repository is not None, "what is pushed has a registry"
    return repository.name


def _words(build: ImageBuild, built: BuiltImage) -> list[str]:
    if not build.push:
        return [
            f"image    {built.uri}, with Python {built.python}",
            f"use it   --instance-kind docker --image {built.uri}; --push takes it to Amazon ECR, for jobs on AWS",
        ]
    repository = " (its repository was made)" if built.made_repository else ""
    return [
        f"image    {built.uri}{repository}, with Python {built.python}",
        f"use it   --on aws --image {built.uri}",
        f"         raysm.AWS(image={built.uri!r}, python={built.python!r}, …)",
    ]
