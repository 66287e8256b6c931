"""The options of SageMaker's model parallel library, version 2, as fields of ``Parallel``."""

import warnings
from collections.abc import Mapping
from typing import Any

from raysm.errors import InvalidRequest

# Source: the SageMaker developer guide, "SMP v2 core feature configuration parameters".
NO_EFFECT: dict[str, Any] = {
    "context_parallel_degree": 1,
    "expert_parallel_degree": 1,
    "random_seed": None,
}
"""Options that raysm does not have, with the values at which they ask for nothing; so do False and
None."""

LAUNCHERS = ("mpi", "torch_distributed", "pytorchddp")
"""Keys of an estimator's ``distribution`` that say how workers are started: by themselves they mean
plain DDP."""


def fields_from_smdistributed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the ``Parallel`` that does what these options did.

    Options without ``modelparallel`` become plain DDP.
    """
    flat = _parameters(options)
    workers = flat.pop("processes_per_host", None)
    if options and not _cuts_model(options):
        if flat:
            dropped = ", ".join(f"{name}={value!r}" for name, value in flat.items())
            warnings.warn(f"smdistributed: this is plain DDP; dropped: {dropped}", stacklevel=3)
        return {"workers_per_instance": workers}
    if "partitions" in flat or "pipeline_parallel_degree" in flat:
        raise InvalidRequest(
            "smdistributed: these are options of version 1 of the library; set the fields of "
            "training.Parallel instead (pipeline, tensor, shard, microbatches, placement, "
            "schedule)"
        )
    fields = {
        # 0 is the whole cluster, or what tensor parallelism leaves of it.
        "shard": flat.pop("hybrid_shard_degree", 0) or None,
        "tensor": flat.pop("tensor_parallel_degree", 1),
        "offload": flat.pop("sm_activation_offloading", False),
        "workers_per_instance": workers,
    }
    if not isinstance(fields["offload"], bool):
        raise InvalidRequest(
            f"smdistributed: sm_activation_offloading is {fields['offload']!r}; use True or False"
        )
    for name, value in flat.items():
        if value is not None and value != NO_EFFECT.get(name, False):
            raise InvalidRequest(
                f"smdistributed: {name}={value!r} has no counterpart in raysm; leave it out"
            )
    return fields


def _cuts_model(options: Mapping[str, Any]) -> bool:
    if "smdistributed" in options:
        return _cuts_model(options["smdistributed"])
    return "modelparallel" in options or not options.keys() <= {*LAUNCHERS, "dataparallel"}


def _parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for name, value in options.items():
        if name in ("smdistributed", "modelparallel", "dataparallel", "parameters", *LAUNCHERS):
            if not isinstance(value, Mapping):
                raise InvalidRequest(f"smdistributed: {name} is {value!r}; it must be a dict")
            parameters.update(_parameters(value))
        elif name != "enabled":
            parameters[name] = value
        # An estimator with the library switched off asks for plain training: to map its options
        # would cut a model.
        elif value is not True:
            raise InvalidRequest(
                "smdistributed: enabled is not True, so there is nothing to map; leave it out"
            )
    return parameters
