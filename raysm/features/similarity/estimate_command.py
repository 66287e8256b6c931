"""``raysm similarity --estimate``: estimate time and cost from a few measured tiles."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import read_settings
from raysm.cli.sending import cluster
from raysm.core.client.checks import check_instance_type
from raysm.core.client.costs.bill import dollars
from raysm.core.client.costs.prices import price_of, price_of_user
from raysm.core.client.images import Processor, processor_of
from raysm.core.client.settings import Settings
from raysm.core.request import Cluster
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.errors import InvalidRequest, MissingDependency
from raysm.features.similarity.request import MATRIX, QUERIES, Similarity

if TYPE_CHECKING:
    from raysm.features.similarity.cluster.estimate import Estimate

SIZE = re.compile(r"(\d*)xlarge")
"""A size N-xlarge, which has 4 N vCPUs."""

ODD_SIZES = {"ml.c4.8xlarge": 36}
"""The vCPUs of types that do not follow the rule of their names."""

DEFAULT_REGION = "us-east-1"
"""The region with the most known prices; the output names it."""


def run(
    arguments: Arguments, console: Console, measure: "Callable[..., Estimate] | None" = None
) -> None:
    """Measure a few tiles by ``measure``, and print the expected time and cost."""
    settings = read_settings(arguments)
    path = _matrix(settings)
    try:
        # The client may be installed without NumPy, which this option needs.
        from raysm.features.similarity.cluster.estimate import estimate
    except ImportError as error:
        lacks = error.name or error
        raise MissingDependency(
            f"--estimate needs {lacks}: python3 -m pip install 'raysm[local]'"
        ) from error
    # The cast is safe: this command always runs a similarity.
    shape = cluster(settings)
    workload = cast(Similarity, settings.workload())
    for name in shape.types:
        if name != LOCAL_TYPE:
            # The number of cores would follow from a misspelt type as well.
            check_instance_type(name)
    given = settings.table("limits").get("price_per_hour")
    is_sharded = settings.table("inputs")[MATRIX].get("distribution") == "ShardedByS3Key"
    answers: list[dict[str, Any]] = []
    rows: list[tuple[str, str]] = []
    measured: dict[int, Estimate] = {}
    # The service may choose any of the types; each has its own time and price.
    for name in shape.types:
        is_local = name == LOCAL_TYPE
        slots = (os.cpu_count() or 1) if is_local else shape.count * count_vcpus(name)
        if slots not in measured:
            # Instances on this machine share its cores, and need no network between them.
            instances = 1 if is_local else shape.count
            measured[slots] = (measure or estimate)(
                path, workload, slots, instances=instances, shared_out=is_sharded
            )
        expected = measured[slots]
        is_billed = not is_local or given is not None
        price = None
        if given is not None:
            price = price_of_user(given)
        elif is_billed:
            price = price_of(name, settings.table("aws").get("region", DEFAULT_REGION))
        usd = None if price is None else shape.count * price.usd_per_hour * expected.total_s / 3600
        kind = {"instance_type": name} if shape.alternatives else {}
        answers.append({**kind, **_as_json(expected), "usd": usd, "price": price and str(price)})
        rows += [("or", name)] if rows else []
        rows += _rows(expected, shape, name)
        if price is not None and usd is not None:
            money = (
                f"{dollars(usd)} while it computes: {shape.count} x {price}; starts and "
                "transfers are billed too"
            )
            rows.append(("money", money))
        elif is_billed:
            rows.append(("money", f"unknown: no price of {name} is at hand; give --price-per-hour"))
    if arguments.json:
        # The first type is printed in the same form as a single one.
        first, *others = answers
        print(json.dumps({**first, "alternatives": others} if others else first, indent=1))
        return
    for label, text in rows:
        console.print(Text(f"{label:<8} {text}"), soft_wrap=True, highlight=False)


def _rows(expected: "Estimate", shape: Cluster, instance_type: str) -> list[tuple[str, str]]:
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in expected.phases_s.items())
    result = "one file, merged by the head"
    if expected.parts > 1:
        result = (
            f"{expected.parts} files, each of a range of rows that an instance owns, merges "
            "and writes"
        )
    rows = [
        ("time", f"{expected.total_s:.1f} s once the cluster is formed ({phases})"),
        ("result", result),
    ]
    if expected.coming_bytes:
        rows.append(("rows", f"{expected.coming_bytes / 1e9:.2f} GB of rows come to each instance"))
    verb = "has" if expected.tasks == 1 else "have"
    idle = f"; only {expected.tasks} of them {verb} work" if expected.tasks < expected.slots else ""
    if instance_type == LOCAL_TYPE:
        cores = (
            f"this machine's{idle}; computed with {expected.engine}; --instance-type "
            "estimates for another"
        )
    else:
        gpus = (
            "; its GPUs were not measured" if processor_of(instance_type) is Processor.GPU else ""
        )
        cores = (
            f"{shape.count} x {count_vcpus(instance_type)} vCPUs of {instance_type}, each assumed "
            "to be as fast as a "
            f"core of this machine{idle}; computed with {expected.engine}{gpus}"
        )
    return [*rows, ("cores", f"{expected.slots}: {cores}")]


def _matrix(settings: Settings) -> Path:
    inputs = settings.table("inputs")
    if QUERIES in inputs:
        raise InvalidRequest("--estimate measures one matrix against itself; drop --queries")
    matrix = inputs[MATRIX]["uri"] if MATRIX in inputs else "nothing"
    path = matrix.removeprefix("file://")
    if MATRIX not in inputs or "://" in path or path.startswith("job:"):
        raise InvalidRequest(
            f"--estimate needs a matrix on this machine, got {matrix}; give a local path"
        )
    return Path(path)


def _as_json(expected: "Estimate") -> dict[str, Any]:
    answer: dict[str, Any] = {
        "engine": expected.engine,
        "slots": expected.slots,
        "tasks": expected.tasks,
    }
    answer |= {"parts": expected.parts, "coming_bytes": expected.coming_bytes}
    return answer | {"phases_s": expected.phases_s, "total_s": expected.total_s}


def count_vcpus(instance_type: str) -> int:
    """Return the vCPUs of a type from its size: 4 for ``xlarge``, 36 for ``9xlarge``."""
    size = SIZE.fullmatch(instance_type.rpartition(".")[2])
    return ODD_SIZES.get(instance_type, 4 * int(size[1] or 1) if size else 2)
