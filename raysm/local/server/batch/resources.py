"""What jobs of Batch are sent to: environments, queues, policies, definitions. Requests flow in, and are kept.

::

    HOME/batch/resources.json     all of them, written whole at every change
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from raysm.contract.store import put, read_json
from raysm.local.server.batch.model import client_error
from raysm.local.server.moto_internals import ACCOUNT

__all__ = ["Resource", "Resources"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """One of them."""

    part: str
    """What it is, as its ARN says: ``job-queue``."""
    region: str
    """Where it was made."""
    name: str
    """Unique within its part and region; of a definition with the revision, ``train:3``."""
    body: Mapping[str, Any]
    """What it was made of, in the words of the request."""

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:batch:{self.region}:{ACCOUNT}:{self.part}/{self.name}"

    @property
    def is_enabled(self) -> bool:
        """Whether it takes anything; what has no such state does."""
        return bool(self.body.get("state", "ENABLED") == "ENABLED")


class Resources:
    """All of one home; every method may be called from any thread."""

    def __init__(self, home: Path) -> None:
        """Read what is there."""
        self._path = home / "batch" / "resources.json"
        # Once, as the folder of the jobs.
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        # One file for all: there are a dozen, which a person made, and a queue is nothing without its environment.
        listed = read_json(self._path) if self._path.exists() else {"resources": []}
        self._resources = {_key(one): one for one in (Resource(**item) for item in listed["resources"])}

    def add(self, resource: Resource) -> Resource:
        """Keep a new one.

        Raises:
            ApiError: There is one of its name.
        """
        with self._lock:
            if _key(resource) in self._resources:
                raise client_error(f"Object already exists: {resource.arn}")
            return self._keep(resource)

    def change(self, resource: Resource, **changes: Any) -> Resource:
        """Change keys of one's body."""
        with self._lock:
            return self._keep(replace(resource, body={**resource.body, **changes}))

    def remove(self, resource: Resource) -> None:
        """Forget one."""
        with self._lock:
            self._write({key: one for key, one in self._resources.items() if key != _key(resource)})

    def get(self, part: str, region: str, named: str) -> Resource:
        """Return the one of a name or an ARN.

        Raises:
            ApiError: There is none.
        """
        with self._lock:
            # An ARN ends with the name; that of another account or region is another one's.
            name = named.rpartition("/")[2]
            resource = self._resources.get((region, part, name))
        if resource is None or (named.startswith("arn:") and named != resource.arn):
            raise client_error(f"{named} does not exist: there is no such {part} in {region}")
        return resource

    def all(self, part: str, region: str | None = None) -> list[Resource]:
        """Return those of one part, by their names; of one region, or of all."""
        with self._lock:
            listed = [one for one in self._resources.values() if one.part == part and region in (None, one.region)]
        return sorted(listed, key=lambda one: (one.region, one.name))

    def _keep(self, resource: Resource) -> Resource:
        self._write({**self._resources, _key(resource): resource})
        return resource

    def _write(self, resources: dict[tuple[str, str, str], Resource]) -> None:
        # Whole: who reads it after a kill finds the one before or the one behind the change.
        listed = [asdict(one) for one in resources.values()]
        # Closed to others: a definition holds the variables of its jobs.
        put(self._path, json.dumps({"resources": listed}), mode=0o600, within=self._path.parent)
        # After the file: a change that a full disk refused did not happen.
        self._resources = resources


def _key(resource: Resource) -> tuple[str, str, str]:
    return resource.region, resource.part, resource.name
