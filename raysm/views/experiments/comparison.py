"""In what jobs differ, and what they have in common. Pure: rows of the table flow in, their differences flow out."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from raysm.client.experiments.experiment import Experiment
from raysm.views.experiments.columns import metric_columns, parameter_columns, shown, summary_words, took

__all__ = ["Comparison", "Difference", "comparison_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One thing in which jobs differ."""

    group: str
    """``parameter``, ``metric``, ``code``, ``version`` or ``job``."""
    name: str
    """Which one."""
    values: tuple[str, ...]
    """Of each job, for people; empty where it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Some jobs beside each other."""

    jobs: tuple[str, ...]
    """Their names."""
    differences: tuple[Difference, ...]
    """In what they differ."""
    alike: tuple[str, ...]
    """Parameters that all of them have alike, ``lr=0.1``."""

    def __repr__(self) -> str:
        table = [("", *self.jobs), *((f"{item.group} {item.name}".strip(), *item.values) for item in self.differences)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        return "\n".join([*lines, *([f"alike: {', '.join(self.alike)}"] if self.alike else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in ("", "", *self.jobs))
        rows = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in (item.group, item.name, *item.values))
            + "</tr>"
            for item in self.differences
        )
        alike = f"<p>alike: {html.escape(', '.join(self.alike))}</p>" if self.alike else ""
        return f"<table cellpadding=5><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{alike}"


def comparison_of(jobs: Sequence[Experiment]) -> Comparison:
    """Compare jobs."""
    params = parameter_columns(jobs)
    rows = [("parameter", name, [shown_parameter(job, name) for job in jobs]) for name in params]
    # Named shortly below the table: that they are alike is worth knowing, each by itself is not worth a row.
    alike = tuple(f"{name}={values[0]}" for _, name, values in rows if len(set(values)) == 1)
    rows += [
        ("metric", name, [summary_words(job.metrics[name]) if name in job.metrics else "" for job in jobs])
        for name in metric_columns(jobs)
    ]
    # "unknown" is a value: jobs of which nobody knows the code are not said to have the same.
    rows.append(("code", "", [job.code[:12] or "unknown" for job in jobs]))
    for name in dict.fromkeys(name for job in jobs for name in job.versions):
        rows.append(("version", name, [job.versions.get(name, "unknown") for job in jobs]))
    rows += [("version", "image", [job.image for job in jobs]), *_facts(jobs)]
    differing = [
        Difference(group=group, name=name, values=tuple(each)) for group, name, each in rows if len(set(each)) > 1
    ]
    return Comparison(jobs=tuple(job.name for job in jobs), differences=tuple(differing), alike=alike)


def _facts(jobs: Sequence[Experiment]) -> list[tuple[str, str, list[str]]]:
    return [
        ("job", "status", [str(job.status) for job in jobs]),
        ("job", "workload", [job.workload or "" for job in jobs]),
        ("job", "instances", [" + ".join(f"{count} x {kind}" for kind, count in job.instances) for job in jobs]),
        ("job", "took", [took(job.duration_s) for job in jobs]),
        ("job", "cost", [shown(job, "cost_usd") for job in jobs]),
    ]


def shown_parameter(job: Experiment, name: str) -> str:
    """Return a parameter as people read it, to its last digit: two that differ must not read alike."""
    # str() of a float is its shortest text that reads back as the same number.
    return "" if name not in job.parameters else str(job.parameters[name])
