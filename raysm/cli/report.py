"""What a person sees at the end: the result, its shape, the time, and how to read it."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from raysm.client.result import Result
from raysm.request.codec import to_json

__all__ = ["print_result"]


def print_result(
    console: Console,
    result: Any,
    *,
    as_json: bool = False,
    elapsed_s: float | None = None,
    forming_s: float | None = None,
) -> None:
    """Print a result: of a workload, the folder of a script, the value of a function, or nothing.

    Args:
        console: Where to.
        result: What ``Job.result`` returned.
        as_json: Print JSON.
        elapsed_s: How long the user waited, in seconds; None where nobody did.
        forming_s: How long the cluster took to form, in seconds.
    """
    if as_json:
        print(json.dumps(_json(result), indent=1))
        return
    took = "" if elapsed_s is None else f"{elapsed_s:.1f} s"
    if not isinstance(result, Result):
        done = f"completed in {took}" if took else "completed"
        left = f"; what it left is in {result}/" if isinstance(result, Path) else f": {result!r}" if result else ""
        console.print(Text(done + left), soft_wrap=True)
        return
    phases_s = ({} if forming_s is None else {"forming the cluster": forming_s}) | dict(result.manifest.phases_s)
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases_s.items())
    if result.manifest.summary:
        console.print(Text(f"summary  {result.manifest.summary}"), soft_wrap=True)
    for file in result.manifest.files:
        path = _shown(result.path / file.name)
        shape = f"{' x '.join(f'{length:,}' for length in file.shape)}, {file.bytes:,} bytes"
        for label, text in (
            ("result", f"{path}: {shape}"),
            ("time", f"{took} ({phases})" if took else phases),
            ("read it", file.how_to_read.replace(file.name, str(path))),
        ):
            console.print(Text(f"{label:<8} {text}"), soft_wrap=True)


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _json(result: Any) -> dict[str, Any]:
    if isinstance(result, Result):
        return {"path": str(result.path), "manifest": to_json(result.manifest)}
    return {"path": str(result)} if isinstance(result, Path) else {"value": repr(result)}
