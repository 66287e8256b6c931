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
from raysm.cli.config import read_settings, service_to_read
from raysm.cli.jobs import find_to_read
from raysm.cli.sending import cluster
from raysm.core.client.checks import check_instance_type
from raysm.core.client.costs.bill import dollars
from raysm.core.client.costs.prices import price_of, price_of_user
from raysm.core.client.images import Processor, processor_of
from raysm.core.client.results.result import Result
from raysm.core.client.settings import Settings
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest, MissingDependency
from raysm.features.similarity.request import (
    MATRIX,
    PAIRS_RATE,
    QUERIES,
    ROWS_RATE,
    Similarity,
)

if TYPE_CHECKING:
    from raysm.features.similarity.cluster.estimate import Estimate, Rates

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
    pilot = None
    rates: dict[str, Any] = {}
    if arguments.measured_by is not None:
        pilot = find_to_read(arguments.measured_by, service_to_read(arguments)).result()
        rates = {"rates": rates_of(pilot, workload)}
    answers: list[dict[str, Any]] = []
    rows: list[tuple[str, str]] = []
    measured: dict[tuple[int, int], Estimate] = {}
    # The service may choose any of the types; each has its own time and price.
    counts = {each.instance_type: each.count for each in shape.preferences}
    for name in shape.types:
        count = counts.get(name) or shape.count
        is_local = name == LOCAL_TYPE
        # Instances on this machine share its cores, and need no network between them.
        instances = 1 if is_local else count
        slots = (os.cpu_count() or 1) if is_local else count * count_vcpus(name)
        if (slots, instances) not in measured:
            measured[slots, instances] = (measure or estimate)(
                path, workload, slots, instances=instances, shared_out=is_sharded, **rates
            )
        expected = measured[slots, instances]
        is_billed = not is_local or given is not None
        price = None
        if given is not None:
            price = price_of_user(given)
        elif is_billed:
            price = price_of(name, settings.table("aws").get("region", DEFAULT_REGION))
        usd = None if price is None else count * price.usd_per_hour * expected.total_s / 3600
        kind = {"instance_type": name} if shape.alternatives else {}
        answers.append({**kind, **_as_json(expected), "usd": usd, "price": price and str(price)})
        rows += [("or", name)] if rows else []
        rows += _rows(expected, count, name, pilot)
        if price is not None and usd is not None:
            money = (
                f"{dollars(usd)} while it computes: {count} x {price}; starts and "
                "transfers are billed too"
            )
            rows.append(("money", money))
        elif is_billed:
            rows.append(("money", f"unknown: no price of {name} is at hand; give --price-per-hour"))
    if pilot is not None:
        # As many cores as one instance of this machine would use, which compare at the same time.
        here = (measure or estimate)(path, workload, os.cpu_count() or 1).rates
        answers[0]["here"] = to_json(here)
        rows.append(("blocks", _describe_blocks(pilot, here)))
    if arguments.json:
        # The first type is printed in the same form as a single one.
        first, *others = answers
        print(json.dumps({**first, "alternatives": others} if others else first, indent=1))
        return
    for label, text in rows:
        console.print(Text(f"{label:<8} {text}"), soft_wrap=True, highlight=False)


def rates_of(result: Any, workload: Similarity) -> "Rates":
    """Return how fast a core of a finished similarity was.

    Raises:
        InvalidRequest: The job was another one than this, or it has no times of blocks.
    """
    from raysm.features.similarity.cluster.estimate import Rates

    # A function's value may be anything; the result of a similarity has a manifest.
    if not isinstance(result, Result) or PAIRS_RATE not in result.manifest.measures:
        raise InvalidRequest(
            "--measured-by needs a similarity that timed its blocks: run one of the same columns "
            "with this version of raysm"
        )
    manifest = result.manifest
    measures = manifest.measures
    if any("CUDA" in engine for engine in manifest.engines):
        raise InvalidRequest(
            f"--measured-by {manifest.job}: it ran on GPUs, and --estimate is about cores"
        )
    kept = {name: getattr(workload, name) for name in ("top_k", "threshold", "full")}
    other = {name: manifest.workload.get(name) or None for name in kept}
    if any((value or None) != other[name] for name, value in kept.items()):
        asked, had = (
            ", ".join(f"{name}={value}" for name, value in each.items() if value)
            for each in (kept, other)
        )
        raise InvalidRequest(
            f"--measured-by {manifest.job}: it kept {had}, and this one keeps {asked}; what is "
            "kept decides how long a block takes"
        )
    return Rates(
        engine=", ".join(manifest.engines),
        rows=measures[ROWS_RATE],
        pairs=measures[PAIRS_RATE],
        columns=int(manifest.inputs[MATRIX]["columns"]),
    )


def _describe_blocks(pilot: Result, here: "Rates") -> str:
    measures = pilot.manifest.measures
    rate = measures[PAIRS_RATE]
    return (
        f"{measures['block_s']:.3g} s each in the middle, {measures['block_max_s']:.3g} s at most, "
        f"in {pilot.manifest.job}: {rate / 1e6:,.1f} million pairs a second and core; "
        f"a core of this machine compares {here.pairs / 1e6:,.1f} million"
    )


def _rows(
    expected: "Estimate", count: int, instance_type: str, pilot: Result | None
) -> list[tuple[str, str]]:
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
        speed = "" if pilot is None else f", as fast as those of {pilot.manifest.job}"
        cores = (
            f"this machine's{speed}{idle}; computed with {expected.engine}; --instance-type "
            "estimates for another"
        )
    else:
        gpus = (
            "; its GPUs were not measured" if processor_of(instance_type) is Processor.GPU else ""
        )
        model = "a core of this machine"
        if pilot is not None:
            model = f"a core of {pilot.manifest.job}"
        cores = (
            f"{count} x {count_vcpus(instance_type)} vCPUs of {instance_type}, each assumed "
            f"to be as fast as {model}{idle}; computed with {expected.engine}{gpus}"
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
    answer |= {PAIRS_RATE: expected.rates.pairs, ROWS_RATE: expected.rates.rows}
    return answer | {"phases_s": expected.phases_s, "total_s": expected.total_s}


def count_vcpus(instance_type: str) -> int:
    """Return the vCPUs of a type from its size: 4 for ``xlarge``, 36 for ``9xlarge``."""
    size = SIZE.fullmatch(instance_type.rpartition(".")[2])
    return ODD_SIZES.get(instance_type, 4 * int(size[1] or 1) if size else 2)
