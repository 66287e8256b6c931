"""``raysm demo``: run a job on the embedded SageMaker with data of the package."""

import csv
import gzip
from pathlib import Path

from rich.console import Console

from raysm.cli.arguments import Arguments
from raysm.cli.console import now_s, say
from raysm.cli.display import Times
from raysm.cli.report import print_result
from raysm.cli.sending import check_output, follow_and_fetch, send
from raysm.core.client.submit import prepare
from raysm.core.request import Cluster
from raysm.features.similarity.request import Similarity

DATA = Path(__file__).parent / "data"

TOP_K = 3
ROWS = 5
"""Neighbors of each row, and the number of shown rows."""


def run(arguments: Arguments, console: Console) -> None:
    """Send the job, follow it, and show a part of its result."""
    times = Times(started_s=now_s())
    # Checked before the job runs.
    check_output(arguments.output)
    labels = _labels()
    instances = (
        "1 emulated instance"
        if arguments.instances == 1
        else f"{arguments.instances} emulated instances"
    )
    say(
        f"{len(labels):,} pictures of handwritten digits come with raysm. A job of {instances} "
        "forms one Ray cluster "
        f"on this\nmachine, and finds the {TOP_K} most similar other pictures of each: exactly, "
        "by their cosine.",
        console,
    )
    inputs = {"matrix": DATA / "digits.csv.gz"}
    cluster = Cluster(count=arguments.instances)
    job = send(
        prepare(Similarity(top_k=TOP_K), cluster=cluster, inputs=inputs, name="demo"), console
    )
    arguments.has_sent = True
    times.sent_s = now_s()
    result = follow_and_fetch(job, console, times, output=arguments.output)
    say(f"\n{job!r}\n", console)
    neighbors = result.table().to_pylist()
    for row in neighbors[:ROWS]:
        pairs = zip(row["neighbors"], row["similarities"], strict=True)
        others = ", ".join(
            f"{other} (a {labels[other]}, {similarity:.4f})" for other, similarity in pairs
        )
        say(f"picture {row['row']} (a {labels[row['row']]}) is most similar to {others}", console)
    same = sum(labels[row["row"]] == labels[row["neighbors"][0]] for row in neighbors)
    share = f"{100 * same / len(neighbors):.1f} %"
    say(
        f"\n{share} of all pictures show the same digit as the picture most similar to them.\n",
        console,
    )
    print_result(console, result, workload=Similarity.kind, times=times)
    say(
        "\nThe same for your own matrix:  raysm similarity FILE --top-k 10 --instances 2 --output "
        "out/",
        console,
    )


def _labels() -> list[int]:
    # newline="" as the csv module requires.
    with gzip.open(DATA / "digits-labels.csv.gz", "rt", newline="") as file:
        rows = csv.reader(file)
        next(rows)  # the name of the column
        return [int(label) for (label,) in rows]
