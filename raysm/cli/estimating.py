"""``raysm similarity --estimate``: what the job would take and cost, measured on a few tiles; nothing is sent."""

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import read_settings
from raysm.cli.sending import cluster
from raysm.client.account.images import Processor, processor_of
from raysm.client.checks import check_instance_type
from raysm.client.costs.bill import Forecast, forecast
from raysm.client.costs.prices import price_of, price_of_user
from raysm.client.settings import Settings
from raysm.contract.store import files_below
from raysm.errors import InvalidRequest, MissingDependency
from raysm.request import Cluster, Similarity
from raysm.request.cluster import LOCAL_TYPE
from raysm.request.similarity import MATRIX, QUERIES

if TYPE_CHECKING:
    from raysm.workloads.similarity.estimate import Estimate

__all__ = ["run", "vcpus_of"]

SIZE = re.compile(r"(\d*)xlarge")
"""A size that says how often four vCPUs an instance has."""

ODD_SIZES = {"ml.c4.8xlarge": 36}
"""Types whose name says another number than they have."""

DEFAULT_REGION = "us-east-1"
"""Of whose prices most are at hand; each price says its region."""


def run(arguments: Arguments, console: Console, measure: "Callable[..., Estimate] | None" = None) -> None:
    """Measure, and print the time and the money.

    Args:
        arguments: The parsed command line.
        console: Where to print.
        measure: What measures, called as ``estimate`` is; None is ``estimate`` itself.

    Raises:
        InvalidRequest: The matrix is not a local file, or SageMaker does not have the instance type.
        MissingDependency: NumPy or Arrow is not installed here.
    """
    settings = read_settings(arguments)
    path = _matrix(settings)
    try:
        # The client may be installed without NumPy, which this option cannot do without.
        from raysm.workloads.similarity.estimate import estimate
    except ImportError as error:
        lacks = error.name or error
        raise MissingDependency(f"--estimate needs {lacks}: python3 -m pip install 'raysm[local]'") from error
    # The command is the kind: what it chooses is never another one.
    shape, workload = cluster(settings), cast(Similarity, settings.workload())
    for name in shape.types:
        if name != LOCAL_TYPE:
            # Cores follow from any name: those of a misspelt type would look as good.
            check_instance_type(name)
    sizes = _size_bytes(path), _left(workload, path)
    answers: list[dict[str, Any]] = []
    rows: list[tuple[str, str]] = []
    measured: dict[int, Estimate] = {}
    # The service may take any of the types: each has its own time and price.
    for name in shape.types:
        one, of_type = replace(shape, instance_type=name, alternatives=()), None if name == LOCAL_TYPE else name
        slots = (os.cpu_count() or 1) if of_type is None else shape.count * vcpus_of(of_type)
        if slots not in measured:
            # Instances on this machine share its cores, and are one to each other.
            instances = 1 if of_type is None else shape.count
            measured[slots] = (measure or estimate)(
                path, workload, slots, instances=instances, shared_out=_is_shared_out(settings)
            )
        expected = measured[slots]
        billed = _forecast(arguments, settings, one, expected.total_s, sizes)
        is_billed = of_type is not None or arguments.price_per_hour is not None
        answers.append(
            {
                **({"instance_type": name} if shape.alternatives else {}),
                **_as_json(expected, billed if is_billed else None),
            }
        )
        rows += [("or", name)] if rows else []
        rows += _rows(expected, one, of_type, billed if is_billed else None)
    if arguments.json:
        # The wanted one as it is without a choice.
        first, *others = answers
        print(json.dumps({**first, "alternatives": others} if others else first, indent=1))
        return
    for label, text in rows:
        console.print(Text(f"{label:<8} {text}"), soft_wrap=True, highlight=False)


def _rows(expected: "Estimate", shape: Cluster, of_type: str | None, billed: Forecast | None) -> list[tuple[str, str]]:
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in expected.phases_s.items())
    return [
        ("time", f"{expected.total_s:.1f} s once the cluster is formed ({phases})"),
        ("result", _result(expected)),
        *([("rows", _travelling(expected))] if expected.coming_bytes else []),
        ("cores", _cores(expected, shape, of_type)),
        *([] if billed is None else billed.lines(shape.instance_type)),
    ]


def _result(expected: "Estimate") -> str:
    if expected.parts == 1:
        return "one file, merged by the head"
    return f"{expected.parts} files, each of a range of rows that an instance owns, merges and writes"


def _travelling(expected: "Estimate") -> str:
    return f"{expected.coming_bytes / 1e9:.2f} GB of rows come to each instance"


def _matrix(settings: Settings) -> Path:
    """Return where the matrix lies, which has to be here."""
    inputs = settings.table("inputs")
    if QUERIES in inputs:
        raise InvalidRequest("--estimate measures one matrix against itself; drop --queries")
    matrix = inputs[MATRIX]["uri"] if MATRIX in inputs else "nothing"
    path = matrix.removeprefix("file://")
    if MATRIX not in inputs or "://" in path or path.startswith("job:"):
        raise InvalidRequest(f"--estimate measures a matrix that is here, not {matrix}; give a local path")
    return Path(path)


def _forecast(
    arguments: Arguments, settings: Settings, shape: Cluster, computing_s: float, sizes: tuple[int, int | None]
) -> Forecast:
    """Return what is billed, of so many bytes that are read and left."""
    aws, usd_per_hour = settings.table("aws"), arguments.price_per_hour
    region = aws.get("region", DEFAULT_REGION)
    return forecast(
        shape,
        region=region,
        price=price_of(shape.instance_type, region) if usd_per_hour is None else price_of_user(usd_per_hour),
        computing_s=computing_s,
        input_bytes=math.ceil(sizes[0] / shape.count) if _is_shared_out(settings) else sizes[0],
        output_bytes=sizes[1],
        # The images of AWS that are taken where none is named have none.
        lacks_ray="image" not in aws,
    )


def _is_shared_out(settings: Settings) -> bool:
    return bool(settings.table("inputs")[MATRIX].get("distribution") == "ShardedByS3Key")


def _size_bytes(path: Path) -> int:
    """Return the size of a file, or of all files of a folder."""
    return sum(file.stat().st_size for file in files_below(path))


def _left(workload: Similarity, path: Path) -> int | None:
    """Return the size of the result, about; None where only the computing tells."""
    from raysm.workloads.similarity.reading.columns import Selection
    from raysm.workloads.similarity.reading.files import peek

    rows = peek(path, Selection.of(workload)).rows
    if rows is None or workload.threshold is not None:
        return None
    # Of each neighbor its number and its score; of the full matrix its type.
    return rows * 12 * workload.top_k if workload.top_k else rows**2 * (2 if workload.dtype == "float16" else 4)


def _as_json(expected: "Estimate", billed: Forecast | None) -> dict[str, Any]:
    answer: dict[str, Any] = {"engine": expected.engine, "slots": expected.slots, "tasks": expected.tasks}
    answer |= {"parts": expected.parts, "coming_bytes": expected.coming_bytes}
    answer |= {"phases_s": expected.phases_s, "total_s": expected.total_s, "usd": None}
    if billed is not None:
        answer["billed_s"] = {name: [span.least_s, span.most_s] for name, span in billed.phases.items()}
        answer |= {"usd": billed.usd, "warm_usd": billed.warm_usd, "price": billed.price and str(billed.price)}
    return answer


def _cores(expected: "Estimate", shape: Cluster, of_type: str | None) -> str:
    """Say how many cores are counted on, whose they are, and how many of them have work."""
    idle = f", of which only {expected.tasks} have work" if expected.tasks < expected.slots else ""
    if of_type is None:
        sharing = f", which its {shape.count} instances share" if shape.count > 1 else ""
        whose = f"this machine's{sharing}{idle}, with {expected.engine}; --instance-type estimates for another"
    else:
        gpus = "; its GPUs were not measured" if processor_of(of_type) is Processor.GPU else ""
        whose = (
            f"{shape.count} x {vcpus_of(of_type)} vCPUs of {of_type}{idle}, each taken to be as fast as a core of this "
            f"machine, with {expected.engine}{gpus}"
        )
    return f"{expected.slots}: {whose}"


def vcpus_of(instance_type: str) -> int:
    """Return the vCPUs of a type: AWS names sizes by them, ``xlarge`` four, ``9xlarge`` 36, anything smaller two."""
    size = SIZE.fullmatch(instance_type.rpartition(".")[2])
    return ODD_SIZES.get(instance_type, 4 * int(size[1] or 1) if size else 2)
