"""The arguments of ``raysm similarity`` and ``raysm demo``."""

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysm.cli.options import SENDING, SUBMIT, Flag, add_flags, add_sending, required
from raysm.cli.parser import Family, add, add_command
from raysm.features.similarity.request import MATRIX, Similarity


class _Names(argparse.Action):
    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        names = next(csv.reader([values])) or [""]
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), *names])


KEPT = (
    Flag("--top-k K", "workload.top_k", "keep the K most similar other rows of each row"),
    Flag(
        "--threshold T",
        "workload.threshold",
        "keep the pairs of rows with at least this similarity",
    ),
    Flag("--full", "workload.full", "keep the whole N x N matrix"),
)
"""Flags that exclude each other. The workload refuses several of them, and says what to do
instead."""

FLAGS = (
    *KEPT,
    Flag(
        "--queries FILE",
        "inputs.queries.uri",
        "compare the rows of this matrix with those of MATRIX",
    ),
    Flag("--dtype", "workload.dtype", "data type of the result of --full"),
    Flag(
        "--id-column NAME",
        "workload.id_column",
        "column of row IDs, no feature; repeatable",
        takes=tuple[str, ...],
    ),
    Flag(
        "--columns NAME,NAME",
        "workload.columns",
        "features (default: all numbers, no IDs); repeatable",
        action=_Names,
    ),
    Flag(
        "--exclude-columns NAME,NAME",
        "workload.exclude_columns",
        "columns to leave out; repeatable",
        action=_Names,
    ),
    Flag(
        "--parts",
        "workload.parts",
        "number of result files, each written by one instance (default 1)",
    ),
    Flag("--block-rows ROWS", "workload.block_rows", "rows per Ray task (default: automatic)"),
)


def add_demo(commands: Any) -> None:
    command = add_command(
        commands,
        "demo",
        "run a small job on this machine, with data from the package",
        run="raysm.features.similarity.demo_command:run",
        sends_job=True,
        family=Family.RUN,
        before=SUBMIT,
        examples="raysm demo",
        overview=["raysm demo"],
    )
    # Two instances are the smallest cluster.
    add(command, "--instances N", "number of instances (default 2)", type=int, default=2)
    add(command, "--output DIR", "copy the result to this folder", type=Path)


def add_similarity(commands: Any) -> None:
    command = add_command(
        commands,
        "similarity",
        "compute the exact cosine similarity of every row of a matrix with every other row",
        run=SENDING,
        sends_job=True,
        usage="raysm similarity MATRIX (--top-k K | --threshold T | --full) [options]",
        family=Family.RUN,
        before=SUBMIT,
        examples="""\
# the 10 most similar other rows of each row, computed on two instances of this machine
raysm similarity vectors.npy --top-k 10 --instances 2 --output out/
# all pairs with a similarity of at least 0.9
raysm similarity vectors.npy --threshold 0.9 --output out/
# the rows of new.parquet compared with those of catalog.parquet
raysm similarity catalog.parquet --top-k 10 --queries new.parquet --id-column sku --output out/
# how long it will take, and what it will cost
raysm similarity vectors.npy --top-k 10 --instances 16 --estimate --instance-type ml.c5.4xlarge
# the same, as fast as the cores that a small job of this type had
raysm similarity big.npy --top-k 10 --estimate --measured-by pilot --instance-type ml.c5.4xlarge""",
        overview=["raysm similarity vectors.npy --top-k 10 --instances 2 --output out/"],
    )
    command.set_defaults(lacks=_missing, own_options=_own_options)
    add(
        command,
        "MATRIX",
        ".npy, .npz, .csv(.gz), .parquet, or a folder; a path, s3://… or job:NAME/model",
        nargs="?",
    )
    add_flags(command, FLAGS, Similarity)
    text = (
        "give each instance only its share of MATRIX's files (ShardedByS3Key); for the files of "
        "the queries: "
        "--set inputs.queries.distribution=ShardedByS3Key"
    )
    add(command, "--sharded", text)
    text = "measure a few tiles here, print the expected time and cost, and send nothing"
    # A separate module, because it loads the engines of the similarity.
    estimate = "raysm.features.similarity.estimate_command:run"
    add(command, "--estimate", text, action="store_const", dest="run", const=estimate)
    text = "with --estimate: take the speed of a core from this finished similarity, not from here"
    add(command, "--measured-by JOB", text)
    add_sending(command)


def _missing(arguments: argparse.Namespace) -> str | None:
    # A request file is checked when it is read, together with the flags.
    if arguments.request is not None:
        return None
    if arguments.matrix is None:
        return required("MATRIX")
    if arguments.measured_by is not None and not arguments.run.endswith("estimate_command:run"):
        return "--measured-by belongs to --estimate"
    if all(getattr(arguments, flag.dest) is None for flag in KEPT):
        return f"one of the arguments {' '.join(flag.name for flag in KEPT)} is required"
    return None


def _own_options(arguments: argparse.Namespace) -> Mapping[tuple[str, ...], object]:
    values: dict[tuple[str, ...], object] = {}
    if arguments.matrix is not None:
        values["inputs", MATRIX, "uri"] = arguments.matrix
    if arguments.sharded:
        values["inputs", MATRIX, "distribution"] = "ShardedByS3Key"
    if any(getattr(arguments, flag.dest) is not None for flag in KEPT):
        # Exactly one of them may be set, so a flag clears those of the request file.
        values |= {
            ("workload", "top_k"): None,
            ("workload", "threshold"): None,
            ("workload", "full"): False,
        }
    return values
