"""What the model says of top-k on many instances, term by term: nothing is run, and nothing of it was measured there.

    python3 tests/benchmarks/scaling.py [--columns 768] [--top-k 10] [--cores 8]

One line for each number of rows and instances: what merges, how long it takes, who is waited for longest, and all
terms in seconds; then one for each kind of rows, with what one file would take; then what it would save if instances
handed out their own tasks. ``docs/explanation/scaling.md`` has the
tables, and says what the terms are.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from raysm.workloads.similarity.sizing.scaling import total_s, waits_for
from tests.support.scaling import (
    COLUMNS,
    CORES,
    INSTANCES,
    NEIGHBORS,
    ROWS,
    dealt_by_instances,
    kinds,
    sizing_for,
)


def lines(columns=COLUMNS, k=NEIGHBORS, cores=CORES):
    """Yield the table in Markdown."""
    heads = None
    for rows in ROWS:
        for instances in INSTANCES:
            sizing = sizing_for(rows, instances, columns=columns, k=k, cores=cores)
            # Here every instance has all rows: none travels, and the head hands out all tiles.
            none = ("travel", "alone", "dealing")
            costs = [term for term in sizing.expected(sizing.chosen_ranges) if term.name not in none]
            if heads is None:
                heads = ["rows", "instances", "files", "total", "waits for", *(term.name for term in costs)]
                yield from (row_of(heads), row_of(["---"] * len(heads)))
            alone = total_s(sizing.expected(0))
            total = f"{total_s(costs):,.0f} s"
            if sizing.chosen_ranges:
                total += f" (one file: {alone:,.0f} s)"
            figures = [f"{term.seconds:,.1f}" for term in costs]
            who = "'s ".join(waits_for(costs)).replace("s's", "s'")
            yield row_of(
                [f"{rows:.0e}".replace("e+0", "e"), instances, sizing.chosen_ranges or 1, total, who, *figures]
            )


def kind_lines():
    """Yield the table of what ten million rows may be."""
    yield from (row_of(["rows", "instances", "files", "total", "one file", "waits for"]), row_of(["---"] * 6))
    for instances in INSTANCES:
        for name, sizing in kinds(instances).items():
            chosen = sizing.chosen_ranges
            costs = sizing.expected(chosen)
            totals = [f"{total_s(terms):,.0f} s" for terms in (costs, sizing.expected(0))]
            yield row_of([name, instances, chosen or 1, *totals, "'s ".join(waits_for(costs)).replace("s's", "s'")])


def dealt_lines():
    """Yield the table of what it would save if each instance handed out its own tasks, and not the head all."""
    yield from (
        row_of(["rows", "instances", "dispatch", "product", "total", "dealt by instances"]),
        row_of(["---"] * 6),
    )
    for instances in INSTANCES:
        for name, sizing in kinds(instances).items():
            costs = sizing.expected(sizing.chosen_ranges)
            seconds = {term.name: term.seconds for term in costs}
            totals = [total_s(terms) for terms in (costs, dealt_by_instances(costs, instances))]
            figures = (seconds["dispatch"], seconds["product"], *totals)
            yield row_of([name, instances, *(f"{figure:,.0f} s" for figure in figures)])


def row_of(cells):
    return f"| {' | '.join(map(str, cells))} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--top-k", type=int, default=NEIGHBORS, metavar="K")
    parser.add_argument("--cores", type=int, default=CORES, help="of each instance")
    asked = parser.parse_args()
    for line in [*lines(asked.columns, asked.top_k, asked.cores), "", *kind_lines(), "", *dealt_lines()]:
        print(line)


if __name__ == "__main__":
    main()
