"""``raysm similarity --estimate``: what the job would take and cost, measured on a few tiles; nothing is sent."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.choosing import read_settings
from raysm.cli.prices import PRICES, SOURCE, has_gpus, vcpus_of
from raysm.cli.submitting import cluster
from raysm.client.service_model_check import check_instance_type
from raysm.errors import InvalidRequest, MissingDependency
from raysm.request import Cluster, Similarity
from raysm.request.similarity import MATRIX, QUERIES

if TYPE_CHECKING:
    from raysm.workloads.similarity.estimating.estimate import Estimate

__all__ = ["run"]

FORMING_S = 15.0
"""Of a cluster of instances that are there; their provisioning is not billed."""


def run(arguments: Arguments, console: Console) -> None:
    """Measure, and print the time and the money.

    Raises:
        InvalidRequest: The matrix is not a local file, or SageMaker does not have the instance type.
        MissingDependency: NumPy or Arrow is not installed here.
    """
    settings = read_settings(arguments)
    inputs = settings.table("inputs")
    if QUERIES in inputs:
        raise InvalidRequest("--estimate measures one matrix against itself; leave --queries away")
    matrix = inputs[MATRIX]["uri"] if MATRIX in inputs else "nothing"
    path = matrix.removeprefix("file://")
    if MATRIX not in inputs or "://" in path or path.startswith("job:"):
        raise InvalidRequest(f"--estimate measures a matrix that is here, not {matrix}; give a local path")
    try:
        # The client may be installed without NumPy, which this option cannot do without.
        from raysm.workloads.similarity.estimating.estimate import estimate
    except ImportError as error:
        raise MissingDependency(f"--estimate needs {error.name or error}: pip install 'raysm[local]'") from error
    # The command is the kind: what it chooses is never another one.
    shape, workload = cluster(settings), cast(Similarity, settings.workload())
    of_type = None if shape.instance_type == "local" else shape.instance_type
    if of_type is not None:
        # Cores follow from any name: those of a misspelt type would look as good.
        check_instance_type(of_type)
    slots = (os.cpu_count() or 1) if of_type is None else shape.count * vcpus_of(of_type)
    # Instances on this machine share its cores, and are one to each other.
    found = estimate(Path(path), workload, slots, instances=1 if of_type is None else shape.count)
    price = arguments.price_per_hour if arguments.price_per_hour is not None else PRICES.get(of_type or "")
    money = None if price is None else shape.count * price * (found.total_s + FORMING_S) / 3600
    if arguments.json:
        answer = {"engine": found.engine, "slots": slots, "tasks": found.tasks}
        answer |= {"phases_s": found.phases_s, "total_s": found.total_s, "usd": money}
        print(json.dumps(answer, indent=1))
        return
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.phases_s.items())
    lines = [
        f"time     {found.total_s:.1f} s once the cluster is formed ({phases})",
        f"cores    {_cores(found, shape, of_type)}",
    ]
    if money is not None:
        of = "--price-per-hour" if arguments.price_per_hour is not None else SOURCE
        lines.append(f"money    {money:.4f} USD: {shape.count} x {price} USD/h, {FORMING_S:.0f} s to form ({of})")
    elif of_type is not None:
        lines.append(f"money    unknown: no price of {of_type} is at hand; give --price-per-hour")
    for line in lines:
        console.print(Text(line), soft_wrap=True, highlight=False)


def _cores(found: "Estimate", shape: Cluster, of_type: str | None) -> str:
    """Say how many cores are counted on, whose they are, and how many of them have work."""
    idle = f", of which only {found.tasks} have work" if found.tasks < found.slots else ""
    if of_type is None:
        sharing = f", which its {shape.count} instances share" if shape.count > 1 else ""
        whose = f"this machine's{sharing}{idle}, with {found.engine}; --instance-type estimates for another"
    else:
        gpus = "; its GPUs were not measured" if has_gpus(of_type) else ""
        whose = (
            f"{shape.count} x {vcpus_of(of_type)} vCPUs of {of_type}{idle}, each taken to be as fast as a core of this "
            f"machine, with {found.engine}{gpus}"
        )
    return f"{found.slots}: {whose}"
