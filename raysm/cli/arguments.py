"""The arguments of the command line, and the request that they ask for. Pure: nothing is read, nothing started."""

import argparse
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from raysm import __version__
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, JobRequest, Script, Similarity
from raysm.request.job import MATRIX

__all__ = ["Arguments", "parse", "request_of"]

Arguments = argparse.Namespace

EPILOG = """\
examples:
  raysm similarity vectors.npy --top-k 10 --instances 2 --output out/
  raysm run train.py --instances 3 -- --epochs 10
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments") and self.prog.endswith("raysm"):
            message += " (the arguments of a script go behind --, as in: raysm run train.py -- --epochs 10)"
        super().error(message)


def parse(argv: Sequence[str]) -> Arguments:
    """Parse the command line; what stands behind the first ``--`` goes to the user's script verbatim.

    Raises:
        SystemExit: With status 2 and a message on stderr where the arguments are wrong, 0 for ``--help``.
    """
    own, theirs = _split(list(argv))
    arguments = _parser().parse_args(own)
    if theirs and arguments.command != "run":
        _parser().error(f"{arguments.command} takes nothing behind --, got {' '.join(theirs)}")
    arguments.script_args = tuple(theirs)
    return arguments


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="raysm",
        description="One Ray cluster, one workload and one gathered result, on the instances of a SageMaker job "
        "or on this machine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"raysm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_similarity(commands)
    _add_run(commands)
    return parser


def _add_similarity(commands: Any) -> None:
    command = commands.add_parser(
        "similarity",
        help="the exact cosine similarity of every row of a matrix with every other row",
        description="The exact cosine similarity of every row of a matrix with every other row.",
        allow_abbrev=False,
    )
    command.add_argument("matrix", metavar="MATRIX", help=".npy, .npz, .csv, .csv.gz, .parquet, or a folder of them")
    kept = command.add_mutually_exclusive_group(required=True)
    kept.add_argument("--top-k", type=int, metavar="K", help="keep the K most similar other rows of each row")
    kept.add_argument("--threshold", type=float, metavar="T", help="keep the pairs of rows at least this similar")
    kept.add_argument("--full", action="store_true", help="keep the whole N x N matrix as one .npy")
    command.add_argument("--dtype", choices=["float32", "float16"], default="float32", help="of the full matrix")
    command.add_argument("--id-column", metavar="NAME", help="a column of MATRIX that names the rows")
    command.add_argument("--block-rows", type=int, metavar="ROWS", help="rows of one task (default: chosen)")
    _add_common(command)


def _add_run(commands: Any) -> None:
    command = commands.add_parser(
        "run",
        help="a Python script, run on the head of the formed cluster",
        description="Run a Python script on the head of the formed cluster; ray.init() joins it.",
        usage="raysm run SCRIPT [options] [-- ARGUMENTS OF THE SCRIPT]",
        allow_abbrev=False,
    )
    command.add_argument("script", metavar="SCRIPT", help="the script; inside --source-dir where that is given")
    command.add_argument("--source-dir", metavar="DIR", help="a folder that travels whole with the script")
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a channel: the script finds it at $SM_CHANNEL_NAME; may be given several times",
    )
    _add_common(command)


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--instances", type=int, default=1, metavar="N", help="number of instances (default 1)")
    command.add_argument(
        "--instance-kind",
        choices=["process", "namespace"],
        default="process",
        help="what plays an instance: a group of processes (default), or Linux namespaces (root)",
    )
    command.add_argument("--name", help="the job's name (default: made from the command and the time)")
    command.add_argument("--output", type=Path, metavar="DIR", help="where the result goes (default: raysm-out/NAME)")
    command.add_argument("--dry-run", action="store_true", help="print the request and start nothing")


def request_of(arguments: Arguments) -> JobRequest:
    """Build the request that the arguments ask for.

    Raises:
        InvalidRequest: They ask for what cannot be; the message says what, the value and the remedy.
    """
    workload: Script | Similarity
    if arguments.command == "similarity":
        workload = Similarity(
            top_k=arguments.top_k,
            threshold=arguments.threshold,
            full=arguments.full,
            dtype=arguments.dtype,
            id_column=arguments.id_column,
            block_rows=arguments.block_rows,
        )
        inputs = {MATRIX: Input(arguments.matrix)}
    else:
        workload = Script(arguments.script, args=arguments.script_args, source_dir=arguments.source_dir)
        inputs = _channels(arguments.input)
    return JobRequest(
        name=arguments.name or f"{arguments.command}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}",
        workload=workload,
        cluster=Cluster(count=arguments.instances),
        inputs=inputs,
    )


def _channels(texts: Sequence[str]) -> dict[str, Input]:
    channels: dict[str, Input] = {}
    for text in texts:
        name, equals, uri = text.partition("=")
        if not (name and equals and uri):
            raise InvalidRequest(f"--input takes NAME=PATH, got {text!r}")
        if name in channels:
            raise InvalidRequest(f"the channel {name!r} is given twice: --input {name}={channels[name].uri} and {text}")
        channels[name] = Input(uri)
    return channels
