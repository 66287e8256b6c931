"""The options of SageMaker's model parallel library, v1 and v2, as fields of ``Parallel``.

Sources: the configuration parameters in the SageMaker Python SDK's documentation, "Required SageMaker Python SDK
parameters" (v1), and in the SageMaker developer guide, "SMP v2 core feature configuration parameters".
"""

import warnings
from collections.abc import Mapping
from typing import Any

from raysm.errors import InvalidRequest

V1 = {
    "ddp", "microbatches", "offload_activations", "optimize", "partitions", "pipeline", "pipeline_parallel_degree",
    "placement_strategy", "prescaled_batch", "sharded_data_parallel_degree", "shard_optimizer_state",
    "tensor_parallel_degree",
}  # fmt: skip
V2 = {"hybrid_shard_degree", "sm_activation_offloading", "tensor_parallel_degree"}

NO_EFFECT: dict[str, Any] = {
    "auto_partition": True,
    "context_parallel_degree": 1,
    "contiguous": True,
    "ddp_dist_backend": "auto",
    "expert_parallel_degree": 1,
}
"""Options that raysm does not have, with the values at which they ask for nothing; so do False and None."""

REMEDIES = {
    "auto_partition": "name where stages begin by prepare(blocks=[…]) instead",
    "default_partition": "name where stages begin by prepare(blocks=[…]) instead",
    "bf16": "say prepare(precision='bf16') instead",
    "fp16": "say prepare(precision='bf16') instead: float16 would need its losses scaled",
    "fp16_params": "say prepare(precision='bf16') instead: weights stay in float32",
    "horovod": "replicas are kept by DDP: say ddp=True instead",
    "memory_weight": "say optimize='memory' or 'speed'",
    "random_seed": "say prepare(seed=…) instead",
}

LAUNCHERS = ("mpi", "torch_distributed", "pytorchddp")
"""Keys of an estimator's ``distribution`` that say how workers are started: by themselves they mean plain DDP."""

PLACEMENTS = {"cluster": "cluster", "DPT": "cluster", "spread": "spread", "PDT": "spread"}
"""v1's strategies in which the ranks of a tensor group are neighbours, as they have to be here."""


def fields_from_smdistributed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the ``Parallel`` that does what these options did.

    Args:
        options: The ``distribution`` of an estimator, its ``modelparallel``, or the ``parameters`` alone, perhaps with
            ``processes_per_host``. Without ``modelparallel`` this is DDP, and other options are dropped with a warning.

    Raises:
        InvalidRequest: An option or its value has no counterpart; the message names it.
    """
    flat = dict(_parameters(options))
    workers = flat.pop("processes_per_host", None)
    if options and not _cuts_model(options):
        if flat:
            dropped = ", ".join(f"{name}={value!r}" for name, value in flat.items())
            warnings.warn(f"smdistributed: this is plain DDP; dropped: {dropped}", stacklevel=3)
        return {"workers_per_instance": workers}
    is_v1 = "partitions" in flat or "pipeline_parallel_degree" in flat
    known = V1 if is_v1 else V2
    for name, value in list(flat.items()):
        if name in known:
            continue
        if name in V1 | V2:
            raise InvalidRequest(
                f"smdistributed: {name} belongs to {'v2' if is_v1 else 'v1'}, and the other options to "
                f"{'v1' if is_v1 else 'v2'}; options of v1 need 'partitions' or 'pipeline_parallel_degree'"
            )
        if value != NO_EFFECT.get(name, False) and value is not None:
            remedy = REMEDIES.get(name, "leave it out")
            raise InvalidRequest(f"smdistributed: {name}={value!r} has no counterpart in raysm; {remedy}")
        del flat[name]
    return (_from_v1 if is_v1 else _from_v2)(flat) | {"workers_per_instance": workers}


def _cuts_model(options: Mapping[str, Any]) -> bool:
    """Return whether options ask for the model parallel library, not only for a launcher or data parallelism."""
    if "smdistributed" in options:
        return _cuts_model(options["smdistributed"])
    return "modelparallel" in options or not options.keys() <= {*LAUNCHERS, "dataparallel"}


def _parameters(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters out of the wrappings of an estimator's ``distribution``."""
    parameters: dict[str, Any] = {}
    for name, value in options.items():
        if name in ("smdistributed", "modelparallel", "dataparallel", "parameters", *LAUNCHERS):
            if not isinstance(value, Mapping):
                raise InvalidRequest(f"smdistributed: {name} is {value!r}; it must be a dict")
            parameters.update(_parameters(value))
        elif name != "enabled":
            parameters[name] = value
        # An estimator with the library switched off asks for plain training: to map its options would cut a model.
        elif value is not True:
            raise InvalidRequest("smdistributed: enabled is not True, so there is nothing to map; leave it out")
    return parameters


def _from_v1(options: Mapping[str, Any]) -> dict[str, Any]:
    if "partitions" in options and "pipeline_parallel_degree" in options:
        raise InvalidRequest("smdistributed: partitions and pipeline_parallel_degree are the same; say one of them")
    pipeline = _whole(options, "partitions" if "partitions" in options else "pipeline_parallel_degree", 1)
    microbatches = _whole(options, "microbatches", 1)
    tensor = _whole(options, "tensor_parallel_degree", 1)
    ddp = _flag(options, "ddp")
    shard: int | None = _whole(options, "sharded_data_parallel_degree", 1)
    if _flag(options, "shard_optimizer_state"):
        shard = None
    if not ddp and (tensor > 1 or shard != 1):
        raise InvalidRequest("smdistributed: tensors or state are cut, which needs ddp=True as in the library")
    schedule: Any = _one_of(options, "pipeline", {"interleaved": "1f1b", "simple": "gpipe"}, "interleaved")
    _flag(options, "prescaled_batch")  # Either way, batches() gives a tensor group the same rows.
    return dict(
        data=None if ddp else 1,
        shard=shard,
        pipeline=pipeline,
        tensor=tensor,
        placement=_one_of(options, "placement_strategy", PLACEMENTS, "cluster"),
        # With so few micro-batches, one forward and one backward never alternate.
        schedule="gpipe" if microbatches < pipeline else schedule,
        microbatches=None if pipeline == microbatches == 1 else microbatches,
        optimize=_one_of(options, "optimize", {"memory": "memory", "speed": "speed"}, "speed"),
        offload=_flag(options, "offload_activations"),
    )


def _from_v2(options: Mapping[str, Any]) -> dict[str, Any]:
    return dict(
        # 0 is the whole cluster, or what tensor parallelism leaves of it.
        shard=_whole(options, "hybrid_shard_degree", 0, least=0) or None,
        tensor=_whole(options, "tensor_parallel_degree", 1),
        offload=_flag(options, "sm_activation_offloading"),
    )


def _whole(options: Mapping[str, Any], name: str, default: int, least: int = 1) -> int:
    value = options.get(name, default)
    # Python takes True for the integer 1, and a switch is no degree.
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidRequest(f"smdistributed: {name} is {value!r}; it must be a whole number from {least}")
    return value


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequest(f"smdistributed: {name} is {value!r}; it must be True or False")
    return value


def _one_of(options: Mapping[str, Any], name: str, counterparts: Mapping[str, str], default: str) -> Any:
    value = options.get(name, default)
    if not isinstance(value, str) or value not in counterparts:
        names = ", ".join(repr(option) for option in counterparts)
        raise InvalidRequest(f"smdistributed: {name}={value!r} has no counterpart in raysm; use one of {names}")
    return counterparts[value]
