"""``raysm demo``: run a job on the embedded SageMaker with data of the package, and show its result as pictures."""

import csv
import gzip
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.display import Display, Times
from raysm.cli.report import brought, print_result
from raysm.cli.sending import check_output, follow
from raysm.client.job.handle import Job
from raysm.client.results.result import Result
from raysm.client.submit import submit
from raysm.request import Cluster, Similarity

__all__ = ["DATA", "Digits", "neighbors_table", "picture", "run", "same_digit_percent"]

DATA = Path(__file__).parent / "data"
"""The folder of the data; its README.md has their source and licence."""

TOP_K = 3
"""Neighbors of each row; their pictures fit side by side into 80 columns."""

ROWS = 5
"""The number of shown rows."""

SHADES = " ░▒▓█"
"""From paper to ink."""

INK = 16
"""The largest value of a pixel."""

SIDE = 8
"""Pixels of each side of a picture."""

Neighbors = Sequence[dict[str, Any]]
"""Rows of ``neighbors.parquet``: ``row``, ``neighbors``, ``similarities``."""


class Digits:
    """The pictures, and which digit each is.

    Attributes:
        file: The job's input.
        pixels: pixels[N][64], 0 to 16, line by line.
        labels: labels[N], 0 to 9.
    """

    def __init__(self) -> None:
        """Read both files."""
        self.file = DATA / "digits.csv.gz"
        self.pixels = _numbers(self.file)
        self.labels = [label for (label,) in _numbers(DATA / "digits-labels.csv.gz")]


def run(arguments: Arguments, console: Console) -> None:
    """Send the job, follow it, and show a part of its result.

    Raises:
        InvalidRequest: The number of instances is invalid, or the result cannot be copied to ``--output``.
        MissingDependency: raysm was installed without the extra ``local``.
        JobFailed: The job failed.
    """
    times = Times(started_s=time.time())
    # Checked before the job runs.
    if arguments.output is not None:
        check_output(arguments.output)
    digits = Digits()
    _print(console, _introduction(len(digits.labels), arguments.instances))
    job = submit(
        Similarity(top_k=TOP_K),
        cluster=Cluster(count=arguments.instances),
        inputs={"matrix": digits.file},
        name="demo",
    )
    times.sent_s = time.time()
    display = _follow(job, console)
    result = brought(job, arguments.output, console)
    times.formed_s, times.done_s = display.formed_s, display.done_s
    times.ended_s, times.described = time.time(), job.describe()
    _show(console, job, result, digits)
    print_result(console, result, workload=Similarity.kind, times=times)
    _print(console, "\nThe same for your own matrix:  raysm similarity FILE --top-k 10 --instances 2 --output out/")


def neighbors_table(neighbors: Neighbors, labels: Sequence[int], rows: int = ROWS) -> Table:
    """Return a table of the first rows: the digit of each row and of its neighbors."""
    table = Table(box=None, pad_edge=False)
    table.add_column("row", justify="right")
    table.add_column("is a", justify="right")
    table.add_column("most similar other rows")
    for row in neighbors[:rows]:
        pairs = zip(row["neighbors"], row["similarities"], strict=True)
        others = [f"{other} (a {labels[other]}, {similarity:.4f})" for other, similarity in pairs]
        table.add_row(str(row["row"]), str(labels[row["row"]]), "  ".join(others))
    return table


def same_digit_percent(neighbors: Neighbors, labels: Sequence[int]) -> float:
    """Return the percentage of rows with the same digit as their nearest neighbor."""
    same = [row for row in neighbors if labels[row["row"]] == labels[row["neighbors"][0]]]
    return 100 * len(same) / len(neighbors)


def picture(images: Sequence[Sequence[int]]) -> list[str]:
    """Return images side by side as lines of text, with two characters per pixel to make it about square."""
    return ["   ".join(_drawn(image[SIDE * line : SIDE * (line + 1)]) for image in images) for line in range(SIDE)]


def _drawn(pixels: Sequence[int]) -> str:
    return "".join(2 * SHADES[round(pixel * (len(SHADES) - 1) / INK)] for pixel in pixels)


def _introduction(digits: int, instances: int) -> str:
    emulated = "1 emulated instance" if instances == 1 else f"{instances} emulated instances"
    return (
        f"{digits:,} handwritten digits of {SIDE} x {SIDE} pixels come with raysm. A job of {emulated} forms one Ray "
        f"cluster on this\nmachine, and finds for each digit the {TOP_K} most similar others: exactly, by their cosine."
    )


def _follow(job: Job, console: Console) -> Display:
    """Show the job's lines until its end; return the display, which has the times."""
    with Display(console) as display:
        display.way_in = job.service.target.way_to_dashboard(job.name)
        follow(job, display, (f"job {job.name}",))
        return display


def _show(console: Console, job: Job, result: Result, digits: Digits) -> None:
    neighbors: Neighbors = result.table().to_pylist()
    _print(console, f"\n{job!r}\n")
    console.print(neighbors_table(neighbors, digits.labels))
    # The last row of the table, so that its line is right above its picture.
    shown = neighbors[ROWS - 1]
    _print(console, f"\nRow {shown['row']}, and what is most similar to it:\n")
    for line in picture([digits.pixels[index] for index in (shown["row"], *shown["neighbors"])]):
        _print(console, line)
    percent = same_digit_percent(neighbors, digits.labels)
    _print(console, f"\n{percent:.1f} % of all rows are the same digit as the row most similar to them.\n")


def _numbers(path: Path) -> list[list[int]]:
    # newline="" as the csv module requires.
    with gzip.open(path, "rt", newline="") as file:
        rows = csv.reader(file)
        next(rows)  # the names of the columns
        return [[int(number) for number in row] for row in rows]


def _print(console: Console, text: str) -> None:
    # rich would color the numbers, and break the lines of a picture in a narrow terminal.
    console.print(Text(text), soft_wrap=True, highlight=False)
