"""``raysm similarity --estimate``: what the job would take and cost, measured on a few tiles; nothing is sent."""

import json
import os
from pathlib import Path

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.prices import PRICES, SOURCE
from raysm.cli.submitting import similarity
from raysm.errors import InvalidRequest, MissingDependency

__all__ = ["run"]

FORMING_S = 15.0
"""Of a cluster of instances that are there; their provisioning is not billed."""


def run(arguments: Arguments, console: Console) -> None:
    """Measure, and print the time and the money.

    Raises:
        InvalidRequest: The matrix is not a local file, or the instance type is in no table.
        MissingDependency: NumPy or Arrow is not installed here.
    """
    if arguments.queries is not None:
        raise InvalidRequest("--estimate measures one matrix against itself; leave --queries away")
    path = arguments.matrix.removeprefix("file://")
    if "://" in path or path.startswith("job:"):
        raise InvalidRequest(f"--estimate measures a matrix that is here, not {arguments.matrix}; give a local path")
    try:
        from raysm.workloads.similarity.estimate import estimate
    except ImportError as error:
        raise MissingDependency(f"--estimate needs {error.name or error}: pip install 'raysm[local]'") from error
    workload = similarity(arguments)
    slots, price = _cores(arguments), _price(arguments)
    found = estimate(Path(path), workload, slots, instances=1 if arguments.on == "local" else arguments.instances)
    money = None if price is None else arguments.instances * price * (found.total_s + FORMING_S) / 3600
    if arguments.json:
        answer = {"engine": found.engine, "slots": slots, "phases_s": found.phases_s, "total_s": found.total_s}
        print(json.dumps(answer | {"usd": money}, indent=1))
        return
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.phases_s.items())
    lines = [
        f"time     {found.total_s:.1f} s once the cluster is formed ({phases})",
        f"cores    {slots}, each taken to be as fast as one of this machine, with {found.engine}",
    ]
    if money is not None:
        of = "--price-per-hour" if arguments.price_per_hour is not None else SOURCE
        lines.append(
            f"money    {money:.4f} USD: {arguments.instances} x {price} USD/h, {FORMING_S:.0f} s to form ({of})"
        )
    for line in lines:
        console.print(Text(line), soft_wrap=True, highlight=False)


def _cores(arguments: Arguments) -> int:
    """Return the cores of all instances together; instances on this machine share its own."""
    kind = arguments.instance_type
    if kind is None or arguments.on == "local":
        return os.cpu_count() or 1
    if kind not in PRICES:
        known = ", ".join(PRICES)
        raise InvalidRequest(f"--estimate does not know how many cores {kind} has; it knows {known}")
    return int(arguments.instances * PRICES[kind].vcpus)


def _price(arguments: Arguments) -> float | None:
    if arguments.price_per_hour is not None:
        return float(arguments.price_per_hour)
    offer = PRICES.get(arguments.instance_type)
    return None if offer is None else offer.usd_per_hour
