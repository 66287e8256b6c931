"""The command ``raysm``."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments, parse, request_of
from raysm.cli.display import Display
from raysm.contract.result import MANIFEST, Manifest
from raysm.errors import InvalidConfig, InvalidInput, InvalidRequest, MissingDependency, NoRoom, RaysmError
from raysm.request import Similarity
from raysm.request.codec import to_json

__all__ = ["main"]

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 where the job completed, 1 where it failed, 2 where what was asked for cannot be, 130 after Ctrl-C.
    """
    arguments = parse(sys.argv[1:] if argv is None else argv)
    errors = Console(stderr=True)
    try:
        _run(arguments)
    except KeyboardInterrupt:
        errors.print("stopped; nothing is left running", highlight=False)
        return INTERRUPTED
    except (InvalidRequest, InvalidConfig, MissingDependency, NoRoom) as error:
        errors.print(Text(f"raysm: {error}"), soft_wrap=True)
        return 2
    except RaysmError as error:
        errors.print(Text(f"raysm: the job failed: {error}"), soft_wrap=True)
        return 1
    return 0


def _run(arguments: Arguments) -> None:
    request = request_of(arguments)
    if arguments.dry_run:
        print(json.dumps(to_json(request), indent=1))
        return
    output = arguments.output or Path("raysm-out") / request.name
    _check_dependencies()
    from raysm.cli import local_job

    local_job.check_output(output)
    if isinstance(request.workload, Similarity):
        _check_matrix(arguments.matrix, request.workload)
    console = Console()
    started_s = time.monotonic()
    with Display(console) as display:
        result = local_job.run(request, kind=arguments.instance_kind, output=output, display=display)
    _report(console, result, time.monotonic() - started_s, display.forming_s)


def _check_dependencies() -> None:
    try:
        import numpy  # noqa: F401
        import psutil  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            f"instances on this machine need the package {error.name!r}: python3 -m pip install 'raysm[local]'"
        ) from error


def _check_matrix(matrix: str, workload: Similarity) -> None:
    """Refuse what can be seen from the file's header before any instance starts."""
    from raysm.workloads.similarity.matrix import peek

    path = Path(matrix.removeprefix("file://"))
    if matrix.startswith("s3://"):
        return
    rows, _ = peek(path)
    if rows is not None and workload.top_k is not None and workload.top_k > rows - 1:
        raise InvalidInput(f"--top-k {workload.top_k}: {matrix} has {rows:,} rows, so at most {rows - 1} other rows")


def _report(console: Console, result: Path | None, elapsed_s: float, forming_s: float | None) -> None:
    if result is None:
        console.print(f"completed in {elapsed_s:.1f} s", highlight=False)
        return
    if not (result / MANIFEST).is_file():
        console.print(Text(f"completed in {elapsed_s:.1f} s; what the script left is in {result}/"), soft_wrap=True)
        return
    manifest = Manifest.read(result)
    phases_s = ({} if forming_s is None else {"forming the cluster": forming_s}) | dict(manifest.phases_s)
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases_s.items())
    for file in manifest.files:
        path = result / file.name
        shape = f"{' x '.join(f'{length:,}' for length in file.shape)}, {file.bytes:,} bytes"
        for label, text in (
            ("result", f"{path}: {shape}"),
            ("time", f"{elapsed_s:.1f} s ({phases})"),
            ("read it", file.how_to_read.replace(file.name, str(path))),
        ):
            console.print(Text(f"{label:<8} {text}"), soft_wrap=True)
