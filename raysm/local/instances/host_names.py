"""The names of a job's instances as ``/etc/hosts`` tells them: addresses flow in, files flow out, some of them late."""

import threading
from collections.abc import Mapping
from pathlib import Path

from raysm.contract.packages import default_index
from raysm.local.scenario import Scenario

__all__ = ["HostNames"]

NOBODY = "192.0.2.1"
"""An address that is kept for documents (RFC 5737): nothing answers there."""


class HostNames:
    """The name files of the instances of one job."""

    def __init__(self, addresses: Mapping[str, str], scenario: Scenario) -> None:
        """Name ``addresses``, by host, as a scenario's network does."""
        self._addresses = addresses
        self._switches = scenario.network
        self._host_name = scenario.container.hostname
        self._later: list[threading.Timer] = []

    def write(self, path: Path, own_name: str) -> None:
        """Write the file of the instance ``own_name``; it gains the names that come late when they do."""
        late_s = self._switches.names_resolve_after_s
        path.write_text(self.text(own_name, with_hosts=not late_s))
        if late_s:
            # In place, not beside and renamed: the file is mounted, and a mount stays with the file that it is of.
            timer = threading.Timer(late_s, path.write_text, [self.text(own_name, with_hosts=True)])
            timer.daemon = True
            timer.start()
            self._later.append(timer)

    def text(self, own_name: str, *, with_hosts: bool) -> str:
        """Return what the file of ``own_name`` says, with or without the other instances."""
        names = {"localhost": "127.0.0.1"}
        if with_hosts:
            names |= self._addresses
        # A container's runtime writes its host name into its /etc/hosts: torch's gloo finds its own address by it.
        names.setdefault(self._host_name, self._addresses[own_name])
        if self._switches.own_name_is_loopback:
            names[own_name] = "127.0.0.1"
        if self._switches.silent_internet:
            # Without pip on this machine the instances, which run its Python, ask no index.
            index = default_index()
            names |= dict.fromkeys(index.hosts if index else (), NOBODY)
        return "".join(f"{address} {name}\n" for name, address in names.items())

    def close(self) -> None:
        """Write nothing more."""
        for timer in self._later:
            timer.cancel()
