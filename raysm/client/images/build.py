"""An image with all that a job needs, made by docker and pushed to Amazon ECR.

What flows in is an ``ImageBuild``; what flows out is first the very commands, which can be printed, then the image.
With such an image an instance installs nothing as it starts, and needs no way to a package index.
"""

import platform
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from raysm import __version__
from raysm.client.images import ecr
from raysm.client.images.context import write_context
from raysm.client.images.docker import Docker
from raysm.client.python_version import python_version
from raysm.client.service import Service
from raysm.errors import InvalidRequest

__all__ = ["BuiltImage", "ImageBuild", "build_commands", "build_image", "check_build", "tag_of"]

NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
TAG = re.compile(rf"{NAME}(?:/{NAME})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?")
"""A repository's name and a tag, without a registry, as Docker has them
(https://pkg.go.dev/github.com/distribution/reference)."""

LINUX_ON_INTEL = "linux/amd64"
"""What SageMaker's training instances are, but for few."""

ONE_IMAGE = ("--load", "--provenance=false", "--sbom=false")
"""For buildx: without the first, what it makes in a container of its own stays there; without the others, a tag is an
index of manifests, and services that take one image refuse it (https://docs.docker.com/build/metadata/attestations/)."""

ASK_PYTHON = "import sys; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageBuild:
    """What is to be built."""

    base: str | None = None
    """URI of the image that it begins with; None is the Dockerfile's, for CPUs with the Python of this process."""
    gpu: bool = False
    """Whether it is for GPUs."""
    tag: str | None = None
    """``NAME:TAG``, or a whole URI of ECR; None is ``raysm:VERSION-cpu`` or ``-gpu``."""
    platform: str | None = None
    """``linux/amd64``, ``linux/arm64``; None is this machine's if that is Intel's or AMD's, else ``linux/amd64``."""
    push: bool = False
    """Whether it goes to Amazon ECR, into a repository that is made where it is missing."""

    @property
    def base_image(self) -> str | None:
        """The base that docker is told; None where the Dockerfile's own is taken."""
        if self.base is None and not self.gpu:
            # Of this Python: an image with another one could not read the functions that are pickled here.
            return f"python:{python_version()}-slim"
        return self.base

    @property
    def target_platform(self) -> str | None:
        """The platform that docker is told; None where it is the machine's own."""
        # The second is what Windows says.
        is_intel = platform.machine() in ("x86_64", "AMD64")
        return self.platform or (None if is_intel else LINUX_ON_INTEL)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltImage:
    """What was built."""

    uri: str
    """What it is called: as ``AWS(image=…)`` takes it, where it was pushed."""
    python: str
    """Version of its Python, ``3.12``."""
    made_repository: bool = False
    """Whether its repository was missing."""


def check_build(build: ImageBuild) -> None:
    """Refuse a tag that docker or ECR would refuse after the build.

    Raises:
        InvalidRequest: It is none, or is not in ECR although it is to be pushed there.
    """
    if build.tag is None:
        return
    repository = ecr.registry_in(build.tag)
    rest = build.tag if repository is None else build.tag.partition("/")[2]
    if not TAG.fullmatch(rest):
        raise InvalidRequest(
            f"--tag is NAME:TAG, in small letters, as raysm:{__version__}, or a whole URI of Amazon ECR; got "
            f"{build.tag!r}"
        )


def tag_of(build: ImageBuild, registry: str | None) -> str:
    """Return what the image is called.

    Args:
        build: What is built.
        registry: Host of the registry that it goes to; None where it stays here.
    """
    tag = build.tag or f"raysm:{__version__}-{'gpu' if build.gpu else 'cpu'}"
    return tag if registry is None or ecr.registry_in(tag) is not None else f"{registry}/{tag}"


def build_commands(build: ImageBuild, tag: str, context: str, *, buildx: bool) -> list[tuple[str, ...]]:
    """Return the arguments of docker, command by command: the building, and the pushing where that is asked for.

    Args:
        build: What is built.
        tag: What it is called.
        context: Folder that ``write_context`` filled.
        buildx: Whether docker has its newer builder.
    """
    command = ["buildx", "build", *ONE_IMAGE] if buildx else ["build"]
    if build.target_platform is not None:
        command += ["--platform", build.target_platform]
    if build.base_image is not None:
        command += ["--build-arg", f"BASE_IMAGE={build.base_image}"]
    command += ["--file", f"{context}/{_dockerfile(build)}", "--tag", tag, context]
    return [tuple(command), *([("push", tag)] if build.push else [])]


def build_image(build: ImageBuild, docker: Docker, service_in: Callable[[str | None], Service]) -> BuiltImage:
    """Build the image, and push it where that is asked for.

    Args:
        build: What to build.
        docker: Builds it.
        service_in: Returns AWS in a region; None is the region of the configuration. Asked only for what is in ECR.

    Raises:
        InvalidRequest: The tag cannot be.
        MissingDependency: raysm was installed without its Dockerfiles.
        ServiceError: docker or ECR refused.
    """
    check_build(build)
    # Before AWS is asked: without a daemon there will be no image for a repository.
    docker.check_daemon()
    is_new, host = False, None
    if build.push:
        # All that ECR may refuse comes first: a build takes minutes.
        host, is_new = _open_repository(build, docker, service_in)
    base = ecr.registry_in(build.base or "")
    # One login opens a registry for the pull and the push; of another account's or region's there is none yet.
    if base is not None and base.host != host:
        docker.log_in(base.host, ecr.log_in_to(service_in(base.region)).password)
    tag = tag_of(build, host)
    with tempfile.TemporaryDirectory(prefix="raysm-image-") as folder:
        context = Path(folder) / "context"
        write_context(context, _dockerfile(build))
        built, *pushed = build_commands(build, tag, str(context), buildx=docker.has_buildx())
        docker.show(built)
    # Before the push: an image whose python3 does not answer is of no use to a job.
    python = _python_of(build, docker, tag)
    for command in pushed:
        docker.show(command)
    return BuiltImage(uri=tag, python=python, made_repository=is_new)


def _open_repository(
    build: ImageBuild, docker: Docker, service_in: Callable[[str | None], Service]
) -> tuple[str, bool]:
    """Log in to the registry that the image goes to, and make its repository; return the host, and whether it did."""
    named = ecr.registry_in(build.tag or "")
    service = service_in(None if named is None else named.region)
    login = ecr.log_in_to(service)
    host = login.host if named is None else named.host
    docker.log_in(host, login.password)
    # In another account's registry repositories are made by that account.
    if host != login.host:
        return host, False
    name = (tag_of(build, None) if named is None else named.name).partition(":")[0]
    return host, ecr.make_repository(service, name)


def _python_of(build: ImageBuild, docker: Docker, tag: str) -> str:
    where = [] if build.target_platform is None else ["--platform", build.target_platform]
    # AWS's images have an entry point of their own, which would take the command for its arguments.
    return docker.ask("run", "--rm", "--network", "none", *where, "--entrypoint", "python3", tag, "-c", ASK_PYTHON)


def _dockerfile(build: ImageBuild) -> str:
    return "Dockerfile.gpu" if build.gpu else "Dockerfile.cpu"
