"""Lay out the folders, files and channels that the instances of a job find."""

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from raysm.contract.paths import DEFAULT_BASE, Paths
from raysm.contract.store import make_folder
from raysm.local import channels
from raysm.local.config_files import JobFiles
from raysm.local.instances import InstanceSpec, Link, Site
from raysm.local.instances.share import Share, measure, split
from raysm.local.job_spec import Channel, JobSpec
from raysm.local.scenario import Scenario

__all__ = ["Preparation"]

# As a path of its own: /data/opt/ml and /opt/ml-2 are other folders.
OPT_ML = re.compile(rf"(?<![\w/.-]){re.escape(str(DEFAULT_BASE))}(?![\w.-])")
"""The base folder as it stands in a command."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """The instances of one job before they start."""

    spec: JobSpec
    """The job."""
    root: Path
    """The folder of the job."""
    present: tuple[str, ...]
    """The hosts that come."""
    site: Site
    """Where they run."""
    entries: Mapping[str, list[channels.Entry]]
    """What each host gets of the channels."""
    scenario: Scenario
    """What AWS would do to them."""

    def linked(self) -> list[Channel]:
        """Return the channels of which the instances see the user's own files."""
        linked = [entry.name for entries in self.entries.values() for entry in entries if not entry.owned]
        places = {channel.name: self.spec.place_of(channel) for channel in self.spec.channels}
        return [
            channel
            for channel in self.spec.channels
            if any(name.is_relative_to(places[channel.name]) for name in linked)
        ]

    def base(self, host: str) -> Path:
        """Return the folder that is, or plays, the host's ``/opt/ml``."""
        return self.root / host / "ml"

    def write(self, open_log: Callable[[str], int]) -> list[InstanceSpec]:
        """Write each instance's files; return the instances, the head first.

        Args:
            open_log: Returns where the output of a host goes.
        """
        files = JobFiles(spec=self.spec, interface=self.site.interface)
        order = sorted(self.present, key=lambda host: (host != self.spec.first, self.spec.hosts.index(host)))
        originals = tuple(channel.source.resolve() for channel in self.linked())
        # Among those that come: what an absent host would have got is nobody's.
        shares = dict(zip(order, split(measure(), len(order)), strict=True))
        bases = {host: self.base(host) for host in order}
        for host, base in bases.items():
            # The job's folder is its owner's to make: the home in which it lies may have been deleted.
            (self.root / host).mkdir(exist_ok=True)
            files.write(host, base, self.site.base_inside(base))
        channels.hand_over(self.entries, bases)
        for host in order:
            self._warm(host)
        variables = files.variables()
        return [
            replace(self._spec(host, shares[host], variables, open_log(host)), originals=originals) for host in order
        ]

    def _warm(self, host: str) -> None:
        """Give a host the cache folder of the instance that it was in the job before."""
        if self.spec.warm is None:
            return
        cache = Paths(self.base(host), self.spec.api).warm_pool_cache
        make_folder(cache.parent, within=self.base(host))
        if (self.spec.warm / host).is_dir():
            shutil.move(self.spec.warm / host, cache)
        # Also where nothing was kept: every job of a warm pool finds the folder.
        cache.mkdir(exist_ok=True)

    def _spec(self, host: str, share: Share, variables: Mapping[str, str], log_fd: int) -> InstanceSpec:
        base = self.base(host)
        links = [Link(source=entry.source, target=base / entry.name) for entry in self.entries[host] if not entry.owned]
        # This Python first: a job's ``python`` is the one in which raysm and Ray are installed.
        path = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
        environment = {"PATH": path, "LANG": "C.UTF-8", **variables, **self.spec.environment}
        inside = str(self.site.base_inside(base))
        return InstanceSpec(
            host=host,
            base=base,
            private=self.root / host,
            command=tuple(_seen(word, inside) for word in self.spec.command),
            variables={name: _seen(value, inside) for name, value in environment.items()},
            links=tuple(links),
            share=share,
            log_fd=log_fd,
            scenario=self.scenario,
        )


def _seen(text: str, inside: str) -> str:
    """Return ``text`` with the folder that plays ``/opt/ml`` in its place: instances of kind process have no other."""
    return text if inside == str(DEFAULT_BASE) else OPT_ML.sub(lambda match: inside, text)
