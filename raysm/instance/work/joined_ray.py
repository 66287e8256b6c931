"""Join the cluster for a script that expects to find Ray started, or to start Ray itself."""

import functools
from typing import Any

from raysm.instance.log import remark

OF_A_NEW_CLUSTER = (
    *("num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "local_mode"),
    *("_system_config", "_enable_object_reconstruction", "_node_name"),
)
"""Arguments of ``ray.init`` that describe a cluster to start; Ray refuses them on an existing
one."""
WITHOUT_EFFECT = {"ignore_reinit_error", "include_dashboard", "dashboard_host", "dashboard_port"}
"""Arguments that change nothing for a process that has joined."""


def join(address: str) -> None:
    """Join the cluster at ``address``; later calls of ``ray.init`` join the same one again.

    A call with other options, such as ``runtime_env`` or ``namespace``, joins anew with these.
    """
    import ray

    init = ray.init
    context = init(address=address)

    @functools.wraps(init)
    def init_again(*args: Any, **options: Any) -> Any:
        nonlocal context
        asked_address = args[0] if args else options.pop("address", None)
        left_out = {
            name: value
            for name, value in options.items()
            if name in OF_A_NEW_CLUSTER and value is not None and value is not False
        }
        if asked_address not in (None, "auto", address):
            left_out["address"] = asked_address
        if left_out:
            named = ", ".join(f"{name}={value!r}" for name, value in left_out.items())
            remark(
                f"ray.init joins the job's cluster, which has its own resources: {named} is left out"
            )
        options = {name: value for name, value in options.items() if name not in OF_A_NEW_CLUSTER}
        if ray.is_initialized() and options.keys() <= WITHOUT_EFFECT:
            return context
        ray.shutdown()
        context = init(address=address, **options)
        return context

    ray.init = init_again
