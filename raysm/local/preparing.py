"""Lay out the folders, files and channels that the instances of a job find.

Sources: the SageMaker developer guide, "How Amazon SageMaker Provides Training Information" and
"How Amazon SageMaker Processing Configures Your Processing Container". Fields that the guide does
not mention follow files of real jobs.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from raysm.core.protocol import names
from raysm.core.protocol.paths import DEFAULT_BASE, SDK_CODE, Paths
from raysm.core.protocol.payload import REQUEST, SOURCE
from raysm.core.protocol.store import files_below, make_folder, put
from raysm.local import channels
from raysm.local.instances import InstanceSpec, Link, Site
from raysm.local.instances.share import Share, measure, split
from raysm.local.job_spec import Channel, JobSpec
from raysm.local.scenario import Scenario

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
    entries: Mapping[str, list[channels.Entry]]
    scenario: Scenario

    def linked(self) -> list[Channel]:
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
        """Write each instance's files, and return the instances, the head first; ``open_log`` opens a host's log."""
        order = sorted(
            self.spec.hosts, key=lambda host: (host != self.spec.first, self.spec.hosts.index(host))
        )
        originals = tuple(channel.source.resolve() for channel in self.linked())
        shares = dict(zip(order, split(measure(), len(order)), strict=True))
        bases = {host: self.base(host) for host in order}
        for host, base in bases.items():
            # Without parents: if the server's home was deleted meanwhile, it must not come back.
            (self.root / host).mkdir(exist_ok=True)
            write_files(self.spec, host, base, self.site.base_inside(base), self.site.interface)
        channels.hand_over(
            self.entries, bases, leaves_out_empty=self.scenario.container.leaves_out_empty
        )
        return [
            replace(self._instance_spec(host, shares[host], open_log(host)), originals=originals)
            for host in order
        ]

    def _instance_spec(self, host: str, share: Share, log_fd: int) -> InstanceSpec:
        base = self.base(host)
        links = [
            Link(source=entry.source, target=base / entry.name)
            for entry in self.entries[host]
            if not entry.owned
        ]
        # This Python first, because raysm and Ray are installed in it.
        path = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
        environment = {
            "PATH": path,
            "LANG": "C.UTF-8",
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
    """Replace ``/opt/ml`` in ``text`` by ``inside``, which plays it for instances of kind process."""
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
    if spec.checkpoints:
        place = {"LocalPath": str(inside / spec.checkpoints.target), "S3Uri": spec.checkpoints.uri}
        contents.append((paths.checkpoint_config, place))
    return contents


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
