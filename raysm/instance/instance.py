"""What an instance knows before it starts: configuration, payload, capacity and variables.

The variables are those for its children.

``prepare`` reads and checks all of it before anything is started, and returns one frozen
``Instance``.
"""

import contextlib
import itertools
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace

import raysm
from raysm.core.protocol import names
from raysm.core.protocol import payload as payloads
from raysm.core.protocol.connections import without_proxy
from raysm.core.protocol.paths import SDK_DRIVERS
from raysm.core.protocol.payload import Payload
from raysm.core.protocol.store import files_below, remove_unfinished
from raysm.core.request import Cluster, JobRequest, Ports
from raysm.errors import InvalidConfig
from raysm.instance import environment as environments
from raysm.instance import resources, variables
from raysm.instance.address import LOOPBACK, is_loopback, list_interfaces
from raysm.instance.children import WAIT, Commands
from raysm.instance.control import Identity
from raysm.instance.environment import Environment
from raysm.instance.first_checkpoint import has_checkpoint
from raysm.instance.ray_node import LATER, Capacity, detect_capacity, ray_version, start_arguments
from raysm.instance.ray_start import WORKERS
from raysm.instance.scratch import private_token


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    environment: Environment
    payload: Payload
    ports: Ports
    identity: Identity
    capacity: Capacity
    commands: Commands
    inherited: Mapping[str, str]
    address: str | None = None
    """The address of this instance's Ray node; None until it is known, or if Ray is to find it."""

    @property
    def request(self) -> JobRequest:
        return self.payload.request

    @property
    def cluster(self) -> Cluster:
        return self.payload.request.cluster

    @property
    def name(self) -> str:
        return self.environment.current_host

    @property
    def head(self) -> str:
        return self.environment.head(self.cluster).name

    @property
    def has_own_network(self) -> bool:
        """True if the network's interfaces are this instance's alone.

        A machine with several instances shares its interfaces among them.
        """
        named = self.environment.addresses.get(self.name)
        return named is None or not is_loopback(named)

    def has_checkpoint(self) -> bool:
        """Return whether something was saved among the checkpoints of this instance."""
        paths = self.environment.paths
        return has_checkpoint(paths.checkpoints, paths.state(self.name), self.payload.source)

    def at(self, address: str | None) -> "Instance":
        """Return this instance with its ``address`` and the network interface that has it.

        The other instances use both.

        None is an address that is not known, for which the interface is loopback's.

        The service names no interface to a Processing job, and the one that it names to a Training
        job may not exist.
        """
        interface = self.environment.network_interface
        by_address = {item.address: item.name for item in reversed(list_interfaces())}
        if interface not in by_address.values():
            interface = by_address.get(address or LOOPBACK, interface)
        environment = replace(self.environment, network_interface=interface)
        return replace(self, environment=environment, address=address)

    def ray_command(self, head_address: str | None) -> list[str]:
        workload = self.request.workload
        arguments = start_arguments(
            environment=self.environment,
            cluster=self.cluster,
            ports=self.ports,
            capacity=self.capacity,
            head_address=head_address,
            node_address=self.address,
            log_monitor=workload.log_monitor,
        )
        ahead = workload.workers_ahead(self.capacity.gpus)
        if ahead is None and self._has_small_inputs():
            ahead = 0
        workers = [] if ahead is None else [f"{WORKERS}{ahead}"]
        waits = [WAIT] if head_address == LATER else []
        return [*self.commands.ray, *waits, *workers, *arguments]

    def _has_small_inputs(self) -> bool:
        limit = self.request.workload.small_input_bytes
        inputs = self.request.inputs
        is_whole = all(channel.distribution == "FullyReplicated" for channel in inputs.values())
        if not limit or not is_whole or self.cluster.coordinator_only:
            return False
        files = (
            path for name in inputs for path in files_below(self.environment.paths.channel(name))
        )
        with contextlib.suppress(OSError):  # the driver will report it
            # This ends at the limit, because a channel may have 100,000 files.
            return all(
                size <= limit
                for size in itertools.accumulate(path.stat().st_size for path in files)
            )
        return False

    def ray_environment(self, head_address: str | None = None) -> dict[str, str]:
        """Return the environment of Ray's processes.

        ``head_address`` is needed if the head is another instance.
        """
        additions = variables.user_variables(
            self.environment,
            self.request,
            self.payload.source,
            self.capacity.cpus,
            self.capacity.gpus,
            self.inherited,
        )
        if SDK_DRIVERS in self.environment.channels:
            # The SDK has set some of these variables itself, in the form that its users know.
            additions = {
                name: value for name, value in additions.items() if name not in self.inherited
            }
        additions |= variables.network_variables(
            self.environment, resources.has_efa(), self.inherited
        )
        additions |= variables.ray_variables(
            self.payload.token_file,
            self.environment.ray_temp_dir,
            on_loopback=self.address == LOOPBACK,
        )
        hosts = [host.name for host in self.environment.hosts]
        addresses = [each for each in (self.address, head_address) if each is not None]
        own = ["localhost", LOOPBACK, *hosts, *self.environment.addresses.values(), *addresses]
        additions |= without_proxy(own, self.inherited)
        additions |= variables.gpu_variables(self.inherited)
        additions |= variables.workload_variables(self.request.workload)
        return environments.child_environment(additions, variables.DROPPED, self.inherited)

    def driver_environment(self, ray_address: str | None, failure_record: str) -> dict[str, str]:
        """Return the driver's environment; without ``ray_address``, it is read from stdin later."""
        cluster = {} if ray_address is None else {"RAY_ADDRESS": ray_address}
        # DRIVER comes first, because the job's variables override it.
        return (
            {**variables.DRIVER}
            | self.ray_environment()
            | {names.FAILURE_RECORD: failure_record}
            | cluster
        )


def prepare(environ: Mapping[str, str], commands: Commands | None = None) -> Instance:
    environment = environments.read(environ)
    payload = payloads.load(environment.payload)
    cluster = payload.request.cluster
    # Raises if there is no head, for which all instances would wait until the deadline.
    head = environment.head(cluster)
    if environment.current == head:
        # Found now, not after hours: the container's user must be able to write the result.
        for folder in (environment.paths.model, environment.paths.output_data):
            # A missing folder will be created in its first existing parent.
            existing = next(path for path in (folder, *folder.parents) if path.exists())
            if not os.access(existing, os.W_OK | os.X_OK):
                raise InvalidConfig(
                    f"{existing} cannot be written by the container's user ({os.geteuid()}), "
                    f"and the result must go to {folder}: "
                    "run the image as root (USER root), or let that user write there"
                )
    if environment.has_checkpoints:
        # The service restores this folder, including files that an instance had not finished when
        # it died.
        remove_unfinished(environment.paths.checkpoints)
        with contextlib.suppress(OSError):  # user code that writes there will report the error
            environment.paths.state(environment.current_host).mkdir(parents=True, exist_ok=True)
    # The client checked the requested number of instances; this checks the actual number.
    if cluster.coordinator_only and len(environment.hosts) < 2:
        raise InvalidConfig("the head only coordinates, but there is no other instance to work")
    if cluster.min_instances is not None and cluster.min_instances > len(environment.hosts):
        raise InvalidConfig(
            f"min_instances={cluster.min_instances}, "
            f"but the job has {len(environment.hosts)} instances"
        )
    return Instance(
        environment=environment,
        payload=replace(payload, token_file=private_token(payload.token_file, environment.paths)),
        ports=environment.ports(payload.request.ports),
        identity=Identity(
            payload=payload.digest,
            python=platform.python_version(),
            ray=ray_version(),
            raysm=raysm.__version__,
        ),
        capacity=detect_capacity(environment, environ),
        commands=commands or Commands(),
        inherited=dict(environ),
    )
