"""Packages that an image lacks, installed by pip beside the image's own.

What flows in are what is wanted and the wheels that travelled, what flows out is a folder of packages.
The image itself is not changed, and what it has already is not installed again: pip first reports what it would
install, then installs exactly that, without its dependencies, into the folder.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raysm.bootstrap.environment import child_environment, warm_pool_cache
from raysm.bootstrap.lacking import Wanted, installed_version
from raysm.bootstrap.log import remark
from raysm.bootstrap.package_cache import PackageCache, key_of
from raysm.bootstrap.package_index import check_reachable, credentials_of, pip_config
from raysm.bootstrap.pip import Pip, PipFailed
from raysm.contract.packages import RAY_RANGE, default_index, name_of
from raysm.contract.payload import Payload
from raysm.contract.store import sha256_of
from raysm.errors import InvalidRequest
from raysm.request.external import CodeArtifact

__all__ = ["bring", "install"]

MB = 1e6
INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_NO_INDEX")
"""They would count more than an index that the request names."""
WITHOUT_NETWORK = "the job is isolated: let the packages travel (wheels), or take an image that has them"
TOOLKIT_INDEX = "CA_REPOSITORY_ARN"
"""The variable in which AWS's training toolkit is told a CodeArtifact repository; who has set it means it here too."""


def bring(payload: Payload, packages: Wanted, site: Path, environ: Mapping[str, str]) -> Path:
    """Return a folder that has ``packages``: of an earlier job of this warm pool, or newly installed.

    Args:
        payload: As ``install`` has it.
        packages: As ``lacking`` returns it.
        site: Where to install it if no warm pool keeps it.
        environ: The environment variables of this process.

    Raises:
        InvalidRequest: As ``install`` says.
    """
    folder = warm_pool_cache(environ)
    if folder is None:
        install(payload, packages, site, environ)
        return site
    cache, key = PackageCache(folder), key_of(_asked(payload, packages, environ))
    if cached := cache.find(key):
        remark(f"{packages}: found as an earlier job of this warm pool has installed it")
        return cached
    try:
        with cache.fill(key) as fresh:
            install(payload, packages, fresh, environ)
    except OSError as error:
        # A cache is worth no job: the disk may be full there, and have room here.
        remark(f"warning: packages are not kept for the next job of this warm pool: {error}")
        install(payload, packages, site, environ)
        return site
    return cache.packages(key)


def _asked(payload: Payload, packages: Wanted, environ: Mapping[str, str]) -> object:
    """Return all on which it depends what pip installs, as JSON."""
    wheels = {path.name: sha256_of(path) for path in payload.wheels.iterdir()} if payload.wheels else {}
    # Also how pip is told of an index, for people who have several with packages of one name.
    variables = {name: value for name, value in environ.items() if name.startswith("PIP_") or name == TOOLKIT_INDEX}
    return [packages.requirements, packages.needs, wheels, payload.request.pip_index, variables]


def install(payload: Payload, packages: Wanted, site: Path, environ: Mapping[str, str]) -> None:
    """Install ``packages`` into the folder ``site``.

    Args:
        payload: Whose wheels are asked first, and whose request names the index.
        packages: As ``lacking`` returns it.
        site: The folder.
        environ: The environment variables of this process.

    Raises:
        InvalidRequest: pip is not there, too old, or could not install them, or there is no way to its index; one
            sentence.
    """
    site.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="raysm-pip-") as folder:
        try:
            # Before the first call of pip, which may take a minute without a word.
            remark(f"looking for packages that this image lacks: {packages}")
            source, exact = _resolve(payload, packages, Path(folder), environ)
            if not exact:
                return
            remark(f"installing {len(exact)} packages for {packages}")
            resolved_s = time.monotonic()
            source.pip.install(exact, site, source.options)
        except InvalidRequest as error:
            raise InvalidRequest(f"the requirements {packages} cannot be installed: {error}") from error
    ended_s = time.monotonic()
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    remark(
        f"installed {len(exact)} packages, {size / MB:.0f} MB, in {ended_s - began_s:.1f} s, {resolved_s - began_s:.1f}"
        " s of them to find out which; an image that has them begins that much sooner"
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """Where packages come from."""

    pip: Pip
    options: tuple[str, ...]


def _resolve(
    payload: Payload, packages: Wanted, folder: Path, environ: Mapping[str, str]
) -> tuple[_Source, Sequence[str]]:
    """Return what would be installed, and from where: from what travelled or is there, else from the index."""
    listed = _write_constraints(packages, folder)
    # The user's by their file: its lines may be comments.
    file = ["-r", str(payload.requirements)] if payload.requirements else []
    arguments = [*file, *packages.needs, "-c", str(listed)]
    wheels = ("--find-links", str(payload.wheels)) if payload.wheels else ()
    isolated = payload.request.security.isolation
    lacks = ""
    if isolated or _may_be_there(payload, packages):
        # First, and alone where the network is: pip asks its index for each package, also for one that travelled.
        wheelhouse = _Source(Pip(folder, environ), (*wheels, "--no-index"))
        try:
            return wheelhouse, wheelhouse.pip.resolve([*wheelhouse.options, *arguments])
        except PipFailed as error:
            if isolated:
                raise InvalidRequest(f"{error}; {WITHOUT_NETWORK}") from error
            lacks = f"; the wheels that travelled do not do: {error}" if wheels else ""
    try:
        source = _Source(_pip_with_index(payload, folder, environ), wheels)
    except InvalidRequest as error:
        raise InvalidRequest(f"{error}{lacks}") from error
    return source, source.pip.resolve([*wheels, *arguments])


def _may_be_there(payload: Payload, packages: Wanted) -> bool:
    """Return whether all of it may be had without an index: an attempt takes a second."""
    # Another server's package is fetched in any attempt, and may be silent for minutes.
    is_remote = any("://" in line and "file://" not in line for line in packages.requirements)
    return not is_remote and (payload.wheels is not None or not packages.needs)


def _write_constraints(packages: Wanted, folder: Path) -> Path:
    """Write what pip must keep to: a Ray that raysm works with, and the image's torch."""
    lines = [f"ray{RAY_RANGE}"]
    torch = installed_version("torch")
    # It fits the image's CUDA and NCCL, and another one is gigabytes; who names it means to have another.
    if torch is not None and "torch" not in map(name_of, packages.requirements):
        lines.append(f"torch=={torch}")
    path = folder / "constraints.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _pip_with_index(payload: Payload, folder: Path, environ: Mapping[str, str]) -> Pip:
    """Return pip, told of an index to which there is a way.

    Raises:
        InvalidRequest: There is none.
    """
    index = payload.request.pip_index or environ.get(TOOLKIT_INDEX)
    if not index:
        pip = Pip(folder, environ)
        settings = pip.settings()
        if "no-index" not in settings:
            default = default_index()
            check_reachable(settings.get("index-url", default.url if default else ""))
        return pip
    repository = CodeArtifact.of(index)
    url = index if repository is None else credentials_of(repository)
    check_reachable(url)
    return Pip(folder, child_environment(pip_config(folder, url), INDEX_VARIABLES, environ))
