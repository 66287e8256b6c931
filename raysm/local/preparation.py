"""Lay out the folders, files and channels that the instances of a job find.

Each instance gets its own copy of a small channel, as on SageMaker, and links to a large one. All
channels are checked before anything starts, so that a missing or empty one is reported first.

Sources: the SageMaker developer guide, "How Amazon SageMaker Provides Training Information" and
"How Amazon SageMaker Processing Configures Your Processing Container". Fields that the guide does
not mention follow files of real jobs. Scripts also open four files that it does not mention at all
(``_undocumented_files``).
"""

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from raysm.core.protocol import names
from raysm.core.protocol.file_uri import path_of
from raysm.core.protocol.paths import DEFAULT_BASE, SDK_CODE, Paths
from raysm.core.protocol.payload import REQUEST, SOURCE
from raysm.core.protocol.store import files_below, make_folder, put
from raysm.errors import InvalidInput, InvalidRequest
from raysm.local.instances import InstanceSpec, Link, Site
from raysm.local.instances.base import HOST_NAME
from raysm.local.instances.share import Share, measure, split
from raysm.local.job_spec import Channel, JobSpec
from raysm.local.scenario import Scenario

INPUT = "input"
"""The folder of the inputs below the base folder. ``relink`` skips it: it may have a million files,
and no outputs."""
SMALL_BYTES = 64 << 20
"""The largest channel that is copied: a disk writes it within a moment for several instances."""
SMALL_FILES = 1000


def relink(base: Path, inside: Path) -> None:
    """Change absolute links below ``base`` that use ``inside``, to use ``base``.

    ``inside`` is the instance's name of that folder.
    """
    for at, folders, files in os.walk(base):
        if Path(at) == base:
            folders[:] = [name for name in folders if name != INPUT]
        for path in (Path(at, name) for name in (*folders, *files)):
            if not path.is_symlink():
                continue
            target = path.readlink()
            if target.is_relative_to(inside) and ".." not in target.parts:
                # A link that a container's root owns stays as it is.
                with contextlib.suppress(OSError):
                    path.unlink()
                    path.symlink_to(base / target.relative_to(inside))


@dataclass(frozen=True, slots=True)
class Entry:
    name: PurePosixPath
    """Relative to the base folder: ``input/data/matrix``, or ``input/data/matrix/part-1.npy``."""
    source: Path
    """Absolute, with links resolved."""
    owned: bool = False
    movable: bool = False
    """The source belongs to the job and may be moved."""
    is_mounted: bool = False


def local_path(channel: str, uri: str) -> Path:
    """Return the absolute path of ``uri`` on this machine.

    Raise InvalidRequest if it is no local path.
    """
    scheme, has_scheme, rest = uri.partition("://")
    if uri.startswith("s3:"):
        raise InvalidRequest(
            f"channel {channel!r}: local instances cannot read {uri}; download it (aws s3 cp "
            f"--recursive {uri} FOLDER)"
        )
    if has_scheme and scheme == "file":
        host = rest.partition("/")[0]
        if host not in ("", "localhost"):
            raise InvalidRequest(
                f"channel {channel!r}: {uri} names the host {host!r}; a path of this machine is "
                "file:///path"
            )
        return path_of(uri).absolute()
    if has_scheme:
        raise InvalidRequest(
            f"channel {channel!r}: {uri} is neither a path nor a file:// or s3:// URI"
        )
    # Without resolving it: a link keeps its own name in the channel.
    return Path(uri).expanduser().absolute()


def resolve_channels(spec: JobSpec) -> dict[str, list[Entry]]:
    """Return the entries of each host; raise InvalidInput for a channel without readable files.

    A large channel is linked, and neither read nor copied. With ShardedByS3Key, object i of the
    keys in S3's order (by UTF-8 bytes) goes to host ``i % n``: AWS promises about 1/n for each and
    does not say which. A host with an empty share finds an empty folder.
    """
    entries: dict[str, list[Entry]] = {host: [] for host in spec.hosts}
    for channel in spec.channels:
        source = _check_source(channel.name, channel.source)
        place = spec.place_of(channel)
        hosts = spec.hosts_of(channel)
        owned = channel.owned or not channel.is_mounted and is_small(source)
        if channel.distribution == "ShardedByS3Key":
            for index, (key, path) in enumerate(_objects(source)):
                entries[hosts[index % len(hosts)]].append(
                    Entry(place / key, path.resolve(), owned, channel.owned)
                )
            continue
        name = place if source.is_dir() else place / source.name
        for host in hosts:
            entries[host].append(
                Entry(name, source.resolve(), owned, channel.owned, channel.is_mounted)
            )
    return entries


def hand_over(
    entries: Mapping[str, list[Entry]], bases: Mapping[str, Path], *, leaves_out_empty: bool = False
) -> None:
    """Copy owned entries to their hosts.

    The last host of a movable source gets the source itself.
    """
    targets_of: dict[tuple[Path, bool], list[tuple[Path, Path]]] = {}
    for host, base in bases.items():
        for entry in entries[host]:
            if entry.owned:
                targets_of.setdefault((entry.source, entry.movable), []).append(
                    (base, base / entry.name)
                )
    for (source, movable), targets in targets_of.items():
        for number, (base, target) in enumerate(targets, start=1):
            # A list, because files are moved meanwhile.
            for below in [
                path for path in files_below(source) if path.stat().st_size or not leaves_out_empty
            ]:
                path = target / below.relative_to(source) if below != source else target
                make_folder(path.parent, within=base)
                if movable and number == len(targets):
                    shutil.move(below, path)
                else:
                    _copy(below, path)


def _copy(source: Path, target: Path) -> None:
    try:
        target.touch(mode=0o600)  # the token of a payload may be among them
        shutil.copy2(source, target)
    except PermissionError as error:
        raise InvalidInput(
            f"the input {source} cannot be read; change its permissions, or leave it out"
        ) from error


def is_small(source: Path) -> bool:
    size = 0
    for number, path in enumerate(files_below(source), start=1):
        size += path.stat().st_size
        if size > SMALL_BYTES or number > SMALL_FILES:
            return False
    return True


def _check_source(channel: str, path: Path) -> Path:
    if not path.exists():
        raise InvalidInput(f"channel {channel!r}: {path} does not exist; check the path")
    if not path.is_dir() and not path.is_file():
        raise InvalidInput(f"channel {channel!r}: {path} is neither a file nor a folder")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise InvalidInput(f"channel {channel!r}: {path} cannot be read; change its permissions")
    # SageMaker fails a job whose prefix has no object.
    if path.is_dir() and next(files_below(path), None) is None:
        raise InvalidInput(
            f"channel {channel!r}: the folder {path} has no files; give a folder with files"
        )
    return path


def _objects(source: Path) -> list[tuple[str, Path]]:
    if source.is_file():
        return [(source.name, source)]
    keys = [(path.relative_to(source).as_posix(), path) for path in files_below(source)]
    # By bytes, as S3 does; a file's name need not be UTF-8.
    return sorted(keys, key=lambda item: os.fsencode(item[0]))


# As a whole path: /data/opt/ml and /opt/ml-2 are other folders.
OPT_ML = re.compile(rf"(?<![\w/.-]){re.escape(str(DEFAULT_BASE))}(?![\w.-])")
"""The base folder as part of a command."""

CODE_SUFFIXES = (".py", ".sh", ".yaml", ".yml", ".json", ".toml")
"""Files that may name a path for the program; an input's data is not read."""
MAX_CODE_BYTES = 1 << 20

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    spec: JobSpec
    root: Path
    site: Site
    entries: Mapping[str, list[Entry]]
    scenario: Scenario

    def list_linked(self) -> list[Channel]:
        linked = [
            entry.name for entries in self.entries.values() for entry in entries if not entry.owned
        ]
        places = [(channel, self.spec.place_of(channel)) for channel in self.spec.channels]
        return [
            channel
            for channel, place in places
            if any(name.is_relative_to(place) for name in linked)
        ]

    def base(self, host: str) -> Path:
        return self.root / host / "ml"

    def write(self, open_log: Callable[[str], int]) -> list[InstanceSpec]:
        """Write each instance's files, and return the instances, the head first.

        ``open_log`` opens a host's log.
        """
        order = sorted(
            self.spec.hosts, key=lambda host: (host != self.spec.first, self.spec.hosts.index(host))
        )
        originals = tuple(channel.source.resolve() for channel in self.list_linked())
        shares = dict(zip(order, split(measure(), len(order)), strict=True))
        bases = {host: self.base(host) for host in order}
        for host, base in bases.items():
            # Without parents: if the server's home was deleted meanwhile, it must not come back.
            (self.root / host).mkdir(exist_ok=True)
            write_files(self.spec, host, base, self.site.base_inside(base), self.site.interface)
        hand_over(self.entries, bases, leaves_out_empty=self.scenario.container.leaves_out_empty)
        return [
            replace(self._instance_spec(host, shares[host], open_log(host)), originals=originals)
            for host in order
        ]

    def _instance_spec(self, host: str, share: Share, log_fd: int) -> InstanceSpec:
        base = self.base(host)
        links = [
            Link(source=entry.source, target=base / entry.name, is_mounted=entry.is_mounted)
            for entry in self.entries[host]
            if not entry.owned
        ]
        # This Python first, because raysm and Ray are installed in it.
        path = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
        environment = {
            "PATH": path,
            "LANG": "C.UTF-8",
            # The same on every instance, as on AWS: SM_CURRENT_HOST tells them apart.
            "HOSTNAME": HOST_NAME,
            **service_variables(self.spec),
            **self.spec.environment,
        }
        inside = str(self.site.base_inside(base))
        if names.CPUS in environment:
            # Not confined to its part of the machine's CPUs: the job may ask for more than that.
            share = replace(share, affinity=None)
        return InstanceSpec(
            host=host,
            base=base,
            private=self.root / host,
            command=tuple(_replace_opt_ml(word, inside) for word in self.spec.command),
            variables={name: _replace_opt_ml(value, inside) for name, value in environment.items()},
            links=tuple(links),
            share=share,
            log_fd=log_fd,
            scenario=self.scenario,
        )


def _replace_opt_ml(text: str, inside: str) -> str:
    """Replace ``/opt/ml`` in ``text`` by ``inside``.

    ``inside`` plays it for instances of kind process.
    """
    return text if inside == str(DEFAULT_BASE) else OPT_ML.sub(lambda match: inside, text)


def find_opt_ml(paths: Paths) -> Iterator[str]:
    """Yield the first place in each of the job's programs and arguments that names ``/opt/ml``."""
    request = paths.payload / REQUEST
    if request.is_file():
        for argument in json.loads(request.read_text())["workload"].get("args", ()):
            if OPT_ML.search(argument):
                yield f"the argument {argument!r}"
                break
    for folder in (paths.payload / SOURCE, paths.channel(SDK_CODE)):
        for path in sorted(path for path in files_below(folder) if path.suffix in CODE_SUFFIXES):
            if path.stat().st_size > MAX_CODE_BYTES:
                continue
            lines = path.read_text(errors="replace").splitlines()
            for number, line in enumerate(lines, start=1):
                if OPT_ML.search(line) and not line.lstrip().startswith("#"):
                    yield f"{path.relative_to(folder)}, line {number} ({line.strip()[:80]})"
                    break


def service_variables(spec: JobSpec) -> dict[str, str]:
    if spec.api.layout.description:
        # A Processing job's name and ARN are in its description.
        return {"AWS_REGION": spec.region}
    return {"TRAINING_JOB_NAME": spec.name, "TRAINING_JOB_ARN": spec.arn, "AWS_REGION": spec.region}


def write_files(
    spec: JobSpec, host: str, base: Path, inside: Path, interface: str = "eth0"
) -> Paths:
    paths = Paths(base, spec.api)
    for folder in (
        paths.config,
        paths.model,
        paths.output_data,
        paths.failure.parent,
        paths.payload.parent,
    ):
        make_folder(folder, within=base.parent)
    for place in spec.outputs.values():
        make_folder(base / place, within=base)
    if spec.checkpoints:
        make_folder(base / spec.checkpoints.target, within=base)
    for channel in spec.channels:
        # A host with an empty share finds an empty folder.
        if channel.distribution != "FullyReplicated" and host in spec.hosts_of(channel):
            make_folder(base / spec.place_of(channel), within=base)
    for path, content in _config_files(spec, host, paths, inside, interface):
        put(path, json.dumps(content, indent=1) + "\n", within=base)
    return paths


def _config_files(
    spec: JobSpec, host: str, paths: Paths, inside: Path, interface: str
) -> list[tuple[Path, Any]]:
    # As the service lists them: algo-10 before algo-2.
    hosts = sorted(spec.hosts)
    if paths.description:
        config = {"current_host": host, "hosts": hosts}
        return [(paths.resource_config, config), (paths.description, dict(spec.description))]
    mine = next(group for group in spec.groups if host in group.hosts)
    resources = {
        "current_host": host,
        "current_instance_type": mine.instance_type,
        "current_group_name": mine.name,
        "hosts": hosts,
        "instance_groups": [
            {
                "instance_group_name": group.name,
                "instance_type": group.instance_type,
                "hosts": sorted(group.hosts),
            }
            for group in spec.groups
        ],
        "network_interface_name": interface,
    }
    inputs = {
        channel.name: _channel_config(channel)
        for channel in spec.channels
        if host in spec.hosts_of(channel)
    }
    contents: list[tuple[Path, Any]] = [
        (paths.resource_config, resources),
        (paths.input_data_config, inputs),
    ]
    contents.append((paths.hyperparameters, dict(spec.hyperparameters)))
    contents.extend(_undocumented_files(spec, host, paths))
    if spec.checkpoints:
        place = {"LocalPath": str(inside / spec.checkpoints.target), "S3Uri": spec.checkpoints.uri}
        contents.append((paths.checkpoint_config, place))
    return contents


def _undocumented_files(spec: JobSpec, host: str, paths: Paths) -> list[tuple[Path, Any]]:
    """Return the files that public scripts open, and that only their names describe.

    Each holds the part of the request that it is named for, so that it is there and is JSON.
    """
    request = spec.description
    algorithm = request.get("AlgorithmSpecification") or {}
    place = {"clusterSize": len(spec.hosts), "hostNumber": spec.hosts.index(host)}
    return [
        (paths.init_config, {"inputMode": "FILE", "hostConfig": place}),
        (paths.job_config, dict(request)),
        (paths.metric_definitions, algorithm.get("MetricDefinitions") or []),
        (paths.upstream_output_config, dict(request.get("OutputDataConfig") or {})),
    ]


def _channel_config(channel: Channel) -> dict[str, str]:
    config = {
        # The service writes File for FastFile too.
        "TrainingInputMode": "File",
        "S3DistributionType": channel.distribution,
        "RecordWrapperType": channel.record_wrapper,
    }
    return (
        config if channel.content_type is None else {"ContentType": channel.content_type, **config}
    )
