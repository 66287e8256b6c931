"""What a person sees at the end: the result, its size, how to read it, the time, and the money."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from raysm.cli.times import Times
from raysm.client.costs import bill as costs
from raysm.client.costs.bill import Bill
from raysm.client.job.handle import Job
from raysm.client.results.result import Result, earlier_result
from raysm.contract.result import ResultFile
from raysm.request.codec import to_json
from raysm.request.workload import Workload, built_in_kind

__all__ = ["brought", "print_result"]

SHOWN = 3
"""Files of a script's result that are named; of more, the number is."""


def brought(job: Job, output: Path | None, console: Console) -> Any:
    """Return a job's result, brought to ``output`` where one is named; say so where it took another one's place."""
    # Asked now: the result that comes takes its place.
    earlier = None if output is None else earlier_result(output)
    result = job.result(to=output)
    if earlier is not None and earlier.job != job.name:
        console.print(Text(f"replaced the result of {earlier.job} in {output}"), soft_wrap=True)
    return result


def print_result(
    console: Console,
    result: Any,
    *,
    workload: str = "",
    as_json: bool = False,
    times: Times | None = None,
    bill: Bill | None = None,
) -> None:
    """Print a result: of a workload, the folder of a job of others, the value of a function, or nothing.

    Args:
        console: Where to.
        result: What ``Job.result`` returned.
        workload: Kind of the job's workload, empty where it is a job of others.
        as_json: Print JSON.
        times: Where the time went that the user waited; None where the command only fetched the result.
        bill: What the job has cost; None where nobody is billed for it.
    """
    if as_json:
        print(json.dumps(_json(result) | ({} if bill is None else {"cost": bill.as_dict()}), indent=1))
        return
    match result:
        case Result():
            lines = [*_lines(result), ("time", _shares(times, result.manifest.phases_s))]
            for label, text in lines:
                console.print(Text(f"{label:<8} {text}"), soft_wrap=True)
            if result.view:
                console.print(Text(f"\n{result.view}\n"), soft_wrap=True)
        case _:
            done = f"completed in {_shares(times, {})}" if times else "completed"
            # The kind is known by a tag that anybody may have written: one that is none of raysm's is not imported
            # for it.
            console.print(Text(done + _what_remains(result, built_in_kind(workload))), soft_wrap=True)
    for label, text in [] if bill is None else costs.lines(bill):
        console.print(Text(f"{label:<8} {text}"), soft_wrap=True)


def _what_remains(result: Any, kind: type[Workload] | None) -> str:
    match result:
        case Path():
            return f"; what it left is in {_shown(result)}/"
        # None is a value too, where the kind returns one.
        case None if kind is None:
            return ""
        case None if kind is not None and not kind.returns_value:
            return f"; nothing was kept: a job keeps {kind.keeps}"
    return f": {result!r}"


def _lines(result: Result) -> list[tuple[str, str]]:
    lines = [("summary", result.manifest.summary)] if result.manifest.summary else []
    files = [file for file in result.manifest.files if file.how_to_read]
    for file in files:
        path = _shown(result.path / file.name)
        lines += [("result", f"{path}: {file.size}"), ("read it", file.how_to_read.replace(file.name, path))]
    others = [file for file in result.manifest.files if not file.how_to_read]
    return [*lines, ("result", _together(result.path, others))] if others else lines


def _together(folder: Path, files: list[ResultFile]) -> str:
    names = [file.name for file in files[:SHOWN]]
    more = [f"{len(files) - SHOWN:,} more"] if len(files) > SHOWN else []
    return f"{_shown(folder)}/: {', '.join([*names, *more])}, {sum(file.bytes for file in files):,} bytes"


def _shares(times: Times | None, phases_s: Mapping[str, float]) -> str:
    whole_s, parts = (None, phases_s) if times is None else times.parts(phases_s)
    shares = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())
    return shares if whole_s is None else f"{whole_s:.1f} s ({shares})"


def _shown(path: Path) -> str:
    """Return the path as it is shortest from here."""
    return min(str(path), os.path.relpath(path), key=len)


def _json(result: Any) -> dict[str, Any]:
    match result:
        case Result():
            return {"path": str(result.path), "manifest": to_json(result.manifest)}
        case Path():
            return {"path": str(result)}
    # A function may return what JSON has no form for.
    return {"value": repr(result)}
