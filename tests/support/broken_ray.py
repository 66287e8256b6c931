"""``python broken_ray.py NAME …``: raysm's ``ray start`` with a Ray in which one private name means something else."""

import sys

from raysm.instance import ray_internals, ray_start
from raysm.instance.ray_internals import Internal

REGISTERS_S = 8.0

ADAPTED = (
    "RAY_CLIENT",
    "START_PROCESS",
    "INITIALIZE",
    "START_MONITOR",
    "START_DASHBOARD",
    "SETTINGS_OF_START",
)
"""Names whose values raysm replaces, and Ray calls."""
WORDS = {
    # A raylet that waits for files of other names.
    "AGENTS": {option: (port, "other") for option, (port, _) in ray_internals.AGENTS.items()},
    "WORKER_COMMAND": "--other_worker_command",
    "PRESTART": "--other_prestart=",
    "GCS_ADDRESS": "--other-address=",
    "GCS_PORT": "--other_port=",
    "LEAN": ("raylet",),
    "SETUP_WORKER": "other.py",
    "DASHBOARD_PACKAGES": "ray.nosuch",
}
"""Words on Ray's command lines, as another release might have them."""
PROGRAMS = ("STAND_IN", "DashboardPort")
"""Parts of raysm that take the place of Ray's, and may not fit another release."""

NAMES = (*ADAPTED, *WORDS, *PROGRAMS)


def break_name(name):
    if name in WORDS:
        setattr(ray_internals, name, WORDS[name])
    elif name == "STAND_IN":
        ray_start.STAND_IN = (sys.executable, "-c", "raise SystemExit(1)")
    elif name == "DashboardPort":
        ray_start.DashboardPort = None
    else:
        broken, replace = getattr(ray_internals, name), Internal.replace

        def fail(*_, **__):
            raise TypeError(f"{name} has other arguments")

        Internal.replace = lambda self, adapt: replace(
            self, adapt if self is not broken else lambda _: fail
        )


if __name__ == "__main__":
    break_name(sys.argv.pop(1))
    ray_start.REGISTERS_S = REGISTERS_S
    ray_start.main()
