"""Find the packages that an image lacks and install them, without changing the image.

pip first reports what it would install, then installs exactly these files, without their
dependencies, into a folder of the job. Packages that the image has already are not installed again.
A lock names exact versions and hashes of all packages, so nothing is left to resolve: uv installs
them, or pip if there is no uv.
"""

import dataclasses
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from raysm.core.protocol.packages import (
    HASH,
    NEEDS,
    RAY_RANGE,
    default_index,
    installed_version,
    is_locked,
    locks_in,
    name_of,
    ray_will_do,
    without_credentials,
)
from raysm.core.protocol.payload import Payload
from raysm.core.protocol.store import put
from raysm.core.request.external import CodeArtifact
from raysm.errors import InvalidRequest
from raysm.instance.environment import child_environment, warm_pool_cache
from raysm.instance.log import remark

MAX_NAMED = 6
"""Maximum number of packages in a message, because the cause must also fit into the 1,024
characters of a reason."""
MB = 1e6
INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_NO_INDEX")
"""Variables to remove if the request names an index, because pip prefers them to a configuration
file."""
WITHOUT_NETWORK = (
    "the job has no network (isolation): "
    "send the packages along (wheels), or use an image that has them"
)
TOOLKIT_INDEX = "CA_REPOSITORY_ARN"
"""The variable that names a CodeArtifact repository to AWS's training toolkit; raysm uses it
too."""
PIP = (sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check")
RETRIES = ("--timeout", "10", "--retries", "3")
"""pip's defaults, 15 s and 5 retries, take a minute and a half for each package if the server does
not answer."""
# Read from raysm.zip: the instance unpacks it only later.
TESTED = files("raysm.instance") / "tested_packages.json"
"""Versions that were tested together, so that the same raysm installs the same packages next month;
written by ``python3 -m tests.constraints``."""
MAX_ERROR = 600


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingPackages:
    requirements: tuple[str, ...]
    needs: tuple[str, ...] = ()
    remarks: Mapping[str, str] = field(default_factory=dict)
    locked: tuple[str, ...] = ()
    """Lines with hashes whose packages the image lacks, or has in other versions."""
    pins: tuple[str, ...] = ()
    """NAME==VERSION of all lines with hashes that apply here."""
    options: tuple[str, ...] = ()
    """Lines that are options of pip."""
    lock: str = ""
    """The file with the locked packages, and how many of them the image lacks, for people."""

    def __bool__(self) -> bool:
        return bool(self.requirements or self.needs or self.locked)

    def __str__(self) -> str:
        needs = [
            f"{text} ({self.remarks[text]})" if text in self.remarks else text
            for text in self.needs
        ]
        locked = [line.partition(HASH)[0] for line in self.locked]
        named = [*needs, *map(without_credentials, [*self.requirements, *locked])]
        more = [f"{len(named) - MAX_NAMED} more"] if len(named) > MAX_NAMED else []
        return ", ".join([*named[:MAX_NAMED], *more])


def find_missing_packages(payload: Payload) -> MissingPackages:
    modules = ("ray", *payload.request.packages)
    # find_spec does not import the module, which for torch takes seconds. A user's kind of workload
    # may name a module that is not in NEEDS; most packages have their module's name.
    needs = [
        NEEDS.get(module, module) for module in modules if importlib.util.find_spec(module) is None
    ]
    remarks = {}
    own_ray = installed_version("ray")
    if NEEDS["ray"] not in needs and (own_ray is None or not ray_will_do(own_ray)):
        needs.insert(0, NEEDS["ray"])
        remarks[NEEDS["ray"]] = f"this image has Ray {own_ray or 'of an unknown version'}"
    lines = [line.strip() for line in payload.request.requirements]
    locked = [line for line in lines if is_locked(line) and _applies(line)]
    names = {name_of(line) for line in locked}
    missing = tuple(line for line in locked if not _is_installed(line))
    locks = " and ".join(map(str, locks_in(lines)))
    return MissingPackages(
        requirements=tuple(
            line
            for line in lines
            if line and not line.startswith(("#", "-")) and not is_locked(line)
        ),
        needs=tuple(need for need in needs if name_of(need) not in names),
        remarks=remarks,
        locked=missing,
        pins=tuple(line.partition(HASH)[0].partition(";")[0].strip() for line in locked),
        options=tuple(line for line in lines if line.startswith("-")),
        lock=f"{locks}: {len(locked)} exact versions, of which this image lacks {len(missing)}"
        if locks and locked
        else locks,
    )


def _applies(line: str) -> bool:
    """Return whether the environment marker of a requirement holds in this image."""
    marker = line.partition(HASH)[0].partition(" ; ")[2]
    if not marker:
        return True
    # An image may have no packaging but pip's own.
    has_own = importlib.util.find_spec("packaging") is not None
    markers = importlib.import_module(f"{'' if has_own else 'pip._vendor.'}packaging.markers")
    return bool(markers.Marker(marker).evaluate())


def _is_installed(line: str) -> bool:
    version = line.partition(HASH)[0].partition(";")[0].partition("==")[2].strip()
    installed = installed_version(name_of(line))
    # As in PEP 440, 2.9.0 is also 2.9.0+cu130.
    return installed is not None and version in (installed, installed.partition("+")[0])


def install(
    payload: Payload, packages: MissingPackages, site: Path, environ: Mapping[str, str]
) -> tuple[Path, ...]:
    """Install ``packages`` into the folder ``site``, from the payload's wheels or an index.

    The index is that of the payload's request. Locked packages have a folder beside it, because pip
    does not merge packages into a folder that has some.

    Returns:
        The folders to import from.
    """
    site.mkdir(parents=True, exist_ok=True)
    if not packages.locked:
        _install(payload, packages, site, environ)
        return (site,)
    locked = site.with_name(f"{site.name}-locked")
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="raysm-lock-") as folder:
        try:
            remark(f"installing {len(packages.locked)} locked packages")
            used = _from_source(
                payload,
                packages,
                Path(folder),
                environ,
                lambda source: _install_locked(source, packages, locked, Path(folder), environ),
            )
        except InvalidRequest as error:
            raise InvalidRequest(
                f"the packages of {packages.lock} cannot be installed: {error}"
            ) from error
    seconds = time.monotonic() - started_s
    remark(
        f"installed {len(packages.locked)} locked packages, {_size_mb(locked):.0f} MB, by {used} "
        f"in {seconds:.1f} s; an image that has them starts that much sooner"
    )
    if packages.needs or packages.requirements:
        # pip counts what it can import as installed.
        path = os.pathsep.join(filter(None, [str(locked), environ.get("PYTHONPATH", "")]))
        _install(payload, packages, site, {**environ, "PYTHONPATH": path})
    return (site, locked)


def _install(
    payload: Payload, packages: MissingPackages, site: Path, environ: Mapping[str, str]
) -> None:
    packages = dataclasses.replace(packages, locked=())
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="raysm-pip-") as folder:
        try:
            # Logged first, because pip can take a minute without any output.
            remark(f"looking for packages that this image lacks: {packages}")
            source, exact = _from_source(
                payload,
                packages,
                Path(folder),
                environ,
                lambda source: (source, _resolve(source, payload, packages, Path(folder))),
            )
            if not exact:
                return
            remark(f"installing {len(exact)} packages for {packages}")
            resolved_s = time.monotonic()
            source.pip.install(exact, site, source.options)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"the requirements {packages} cannot be installed: {error}"
            ) from error
    ended_s = time.monotonic()
    remark(
        f"installed {len(exact)} packages, {_size_mb(site):.0f} MB, in {ended_s - started_s:.1f} "
        f"s ({resolved_s - started_s:.1f} s of them to resolve versions); "
        "an image that has them starts that much sooner"
    )


def _size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / MB


class PipFailed(InvalidRequest):
    """pip is missing, too old, or failed; the message contains its last error."""


class Pip:
    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ
        # pip downloads files to resolve versions, so without a cache it downloads them twice. Many
        # images switch off its cache, and home folders lie on a small disk. The cache of a warm
        # pool outlives the job.
        cache = (warm_pool_cache(environ) or folder) / "pip"
        self._cache = () if "PIP_CACHE_DIR" in environ else ("--cache-dir", str(cache))

    def resolve(self, arguments: Sequence[str]) -> list[str]:
        """Return the packages that pip would install, and install nothing.

        Each package is a requirement that names one file.
        """
        report = self._folder / "report.json"
        self._install("--dry-run", "--report", str(report), *arguments)
        return [_pinned(item) for item in json.loads(report.read_text(encoding="utf-8"))["install"]]

    def install(self, exact: Sequence[str], site: Path, arguments: Sequence[str]) -> None:
        listed = self._folder / "exact.txt"
        listed.write_text("".join(f"{line}\n" for line in exact), encoding="utf-8")
        self._install("--no-deps", "--target", str(site), "-r", str(listed), *arguments)

    def settings(self) -> dict[str, str]:
        done = self._run("config", "list")
        pairs = (line.partition("=") for line in done.stdout.splitlines())
        # A line is "global.index-url='…'". Variables (":env:.index-url") override the section of
        # the command, which overrides the global one; pip does not print them in this order.
        settings = [
            (name.split("."), value.strip("'\"")) for name, _, value in pairs if "." in name
        ]
        ordered = sorted(
            settings, key=lambda item: (item[0][0] == ":env:", item[0][0] == "install")
        )
        return {name[-1]: value for name, value in ordered}

    def _install(self, *arguments: str) -> None:
        done = self._run(
            "install", "--progress-bar", "off", "--quiet", *self._cache, *RETRIES, *arguments
        )
        if done.returncode != 0:
            # Do not log it: after a failed attempt without an index there is another one with it.
            raise PipFailed(_last_error(done.stderr))
        if done.stderr.strip():
            sys.stderr.write(done.stderr)
            sys.stderr.flush()

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*PIP, *arguments],
            env=dict(self._environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )


def _pinned(item: Mapping[str, Any]) -> str:
    source = item["download_info"]
    name = item["metadata"]["name"]
    url = source["url"]
    if "vcs_info" in source:
        # pip's report has the plain address; a requirement needs the program and the commit too.
        url = f"{source['vcs_info']['vcs']}+{url}@{source['vcs_info']['commit_id']}"
    if "subdirectory" in source:
        url += f"#subdirectory={source['subdirectory']}"
    return f"{name} @ {url}"


def _last_error(output: str) -> str:
    if "No module named pip" in output:
        return f"this image's {sys.executable} has no pip; add it, or the packages, to the image"
    if "no such option: --report" in output:
        return "this image's pip is older than 22.2; add a newer one, or the packages, to the image"
    errors = [
        line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")
    ]
    return (" ".join(errors) or " ".join(output.split())[-MAX_ERROR:])[:MAX_ERROR]


@dataclass(frozen=True, slots=True)
class _Source:
    pip: Pip
    options: tuple[str, ...]


def _install_locked(
    source: _Source,
    packages: MissingPackages,
    site: Path,
    folder: Path,
    environ: Mapping[str, str],
) -> str:
    """Install exactly the locked packages; return the program that did it."""
    lines = [*packages.options, *packages.locked]
    uv = _find_uv(source, len(packages.locked), folder, environ)
    if uv is not None:
        try:
            _install_by_uv(uv, source, lines, site, folder, environ)
            return "uv"
        except PipFailed as error:
            # uv does not read all settings of pip. Without an index, the failure says nothing.
            if "--no-index" not in source.options:
                remark(f"uv could not install them, pip is tried: {error}")
            shutil.rmtree(site, ignore_errors=True)
    source.pip.install(lines, site, source.options)
    return "pip"


MANY = 30
"""From so many packages on, installing uv first (2 s) is faster than pip, which takes 0.3 s for
each."""


def _find_uv(source: _Source, count: int, folder: Path, environ: Mapping[str, str]) -> str | None:
    # A Python that is started by its path may have uv beside it, and not in PATH.
    folders = (environ.get("PATH", os.defpath), str(Path(sys.executable).parent))
    found = shutil.which("uv", path=os.pathsep.join(folders))
    if found is not None or count < MANY or "--no-index" in source.options:
        return found
    try:
        source.pip.install(["uv"], folder / "uv", source.options)
    except PipFailed:
        return None
    return str(folder / "uv" / "bin" / "uv")


UV_SETTINGS: Mapping[str, str] = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
}
"""pip's settings, and the variables by which uv reads the same."""


def _install_by_uv(
    uv: str,
    source: _Source,
    lines: Sequence[str],
    site: Path,
    folder: Path,
    environ: Mapping[str, str],
) -> None:
    listed = folder / "locked.txt"
    listed.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = ["--quiet", "--no-deps", "--python", sys.executable, "--target", str(site)]
    # With hashes it does not matter which of several indexes has a file.
    options += ["--index-strategy", "unsafe-best-match", "-r", str(listed), *source.options]
    # An index may have a token, which other users can read in arguments.
    settings = {
        UV_SETTINGS[name]: value.replace("\\n", " ").strip()
        for name, value in source.pip.settings().items()
        if name in UV_SETTINGS
    }
    cache = (warm_pool_cache(environ) or folder) / "uv"
    done = subprocess.run(
        [uv, "pip", "install", *options],
        env={"UV_CACHE_DIR": str(cache), **settings, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        raise PipFailed(" ".join(without_credentials(done.stderr).split())[-MAX_ERROR:])


def _from_source(
    payload: Payload,
    packages: MissingPackages,
    folder: Path,
    environ: Mapping[str, str],
    attempt: Callable[[_Source], T],
) -> T:
    """Return what ``attempt`` does with the wheels that were sent, or else with an index."""
    wheels = ("--find-links", str(payload.wheels)) if payload.wheels else ()
    isolated = payload.request.security.isolation
    wheels_error = ""
    # Without an index first: with one, pip asks it even for packages that were sent along. The
    # attempt takes seconds, so it is skipped if it cannot succeed: the image lacks what is locked.
    # A requirement with an address is downloaded in any attempt.
    lines = [*packages.requirements, *packages.locked]
    has_address = any("://" in line and "file://" not in line for line in lines)
    is_lacking = bool(packages.needs or packages.locked)
    if isolated or not has_address and (payload.wheels is not None or not is_lacking):
        offline = _Source(Pip(folder, environ), (*wheels, "--no-index"))
        try:
            return attempt(offline)
        except PipFailed as error:
            if isolated:
                raise InvalidRequest(f"{error}; {WITHOUT_NETWORK}") from error
            wheels_error = (
                f"; the wheels that were sent along do not suffice: {error}" if wheels else ""
            )
    try:
        source = _Source(_pip_with_index(payload, folder, environ), wheels)
    except InvalidRequest as error:
        raise InvalidRequest(f"{error}{wheels_error}") from error
    return attempt(source)


def _resolve(
    source: _Source, payload: Payload, packages: MissingPackages, folder: Path
) -> Sequence[str]:
    """Return the exact packages: in versions tested with this raysm, else in other ones."""
    pip = source.pip
    # The user's requirements as a file, because its lines may be options.
    listed = folder / "requirements.txt"
    listed.write_text("".join(f"{line}\n" for line in [*packages.options, *packages.requirements]))
    chosen = {name_of(line) for line in [*packages.requirements, *packages.pins]}
    limits = [f"ray{RAY_RANGE}", *packages.pins]
    torch = installed_version("torch")
    # The image's torch fits its CUDA and NCCL, and another one is gigabytes. A user who names torch
    # wants another.
    if torch is not None and "torch" not in chosen:
        limits.append(f"torch=={torch}")
    tested = json.loads(TESTED.read_text(encoding="utf-8"))
    sent = (
        {name_of(path.name.partition("-")[0]) for path in payload.wheels.glob("*.whl")}
        if payload.wheels
        else set()
    )
    # The image's own versions stay, but for a Ray that raysm cannot use.
    is_missing = {name: installed_version(name) is None for name in tested["versions"]} | {
        "ray": NEEDS["ray"] in packages.needs
    }
    versions = [
        f"{name}=={version}"
        for name, version in tested["versions"].items()
        if is_missing[name] and name not in chosen | sent
    ]
    path = folder / "constraints.txt"
    arguments = [*source.options, "-r", str(listed), *packages.needs, "-c", str(path)]
    path.write_text("".join(f"{line}\n" for line in [*limits, *versions]), encoding="utf-8")
    try:
        return pip.resolve(arguments)
    except PipFailed:
        path.write_text("".join(f"{line}\n" for line in limits), encoding="utf-8")
        exact = pip.resolve(arguments)
        remark(
            f"the versions that were tested with this raysm on {tested['date']} do "
            "not fit; others are installed"
        )
        return exact


def _pip_with_index(payload: Payload, folder: Path, environ: Mapping[str, str]) -> Pip:
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


PATIENCE_S = 12.0
CONNECT_S = 4.0
RETRY_S = 0.2
TOKEN_S = 8


def check_reachable(url: str, patience_s: float = PATIENCE_S) -> None:
    """Return as soon as the index, or the proxy to it, accepts a connection.

    In a VPC without NAT, packets to an index are dropped. pip would try for a minute and a half for
    each package, on every instance that the user pays for.
    """
    # Imported here, because few jobs install packages.
    import urllib.request

    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and parts.hostname and not urllib.request.proxy_bypass(parts.hostname):
        # A proxy may be written without its scheme.
        parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    host = parts.hostname
    port = parts.port or (80 if parts.scheme == "http" else 443)
    deadline_s = time.monotonic() + patience_s
    while host:
        try:
            socket.create_connection((host, port), timeout=min(CONNECT_S, patience_s)).close()
            return
        except socket.gaierror:
            reason = f"the name {host} does not resolve"
        except OSError:
            reason = f"{host} does not answer on port {port}"
        if time.monotonic() >= deadline_s:
            raise InvalidRequest(
                "there is no way from this instance to the package index "
                f"{_without_credentials(url)}: {reason} (tried for {patience_s:g} s); "
                "give the subnets a NAT, name an index that they reach (pip_index), "
                "let the packages travel (wheels), or take an image that has them"
            )
        # Retried, because a new network and its resolver need a moment.
        time.sleep(RETRY_S)


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def pip_config(folder: Path, url: str) -> Mapping[str, str]:
    """Write a configuration file for pip with the index ``url``; return variables that select it.

    Other users could read an argument or a variable, and the address may contain a token.
    """
    path = folder / "pip.conf"
    # Both sections, because a section [install] in the image's own files would override [global]
    # here.
    put(path, f"[global]\nindex-url = {url}\n[install]\nindex-url = {url}\n", mode=0o600)
    return {"PIP_CONFIG_FILE": str(path)}


def credentials_of(repository: CodeArtifact, connect: "Callable[[str], Any] | None" = None) -> str:
    """Return the URL of a CodeArtifact repository for pip, with a token for the job's role."""
    client = (connect or _connect)(repository.region)
    owner = {"domain": repository.domain, "domainOwner": repository.account}
    try:
        token = str(client.get_authorization_token(**owner)["authorizationToken"])
        place = {"repository": repository.name, "format": "pypi"}
        endpoint = str(client.get_repository_endpoint(**owner, **place)["repositoryEndpoint"])
    except Exception as error:  # boto3 creates its exception classes at run time
        raise InvalidRequest(
            f"the job's role gets no token for the CodeArtifact repository {repository.arn}: "
            f"{type(error).__name__}: {error}; it needs codeartifact:GetAuthorizationToken, "
            "codeartifact:GetRepositoryEndpoint, codeartifact:ReadFromRepository and "
            "sts:GetServiceBearerToken, and its subnets a way to CodeArtifact"
        ) from error
    parts = urlsplit(endpoint.rstrip("/") + "/simple/")
    return urlunsplit(parts._replace(netloc=f"aws:{quote(token, safe='')}@{parts.netloc}"))


def _connect(region: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise InvalidRequest(
            "this image has no boto3, which CodeArtifact's token needs: "
            "take one that has it, or another pip_index"
        ) from error
    # By default, botocore would try for a minute, five times, on every instance.
    config = Config(
        connect_timeout=TOKEN_S, read_timeout=TOKEN_S, retries={"total_max_attempts": 1}
    )
    return boto3.client("codeartifact", region_name=region, config=config)
