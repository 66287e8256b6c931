"""What a tuning job looks for: a sweep, or the answer of Describe, flows in; how its trials are read flows out."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.errors import InvalidRequest
from raysm.request.space import Value
from raysm.request.sweep import SweepWorkload

__all__ = ["Sought", "described", "of_sweep"]

MODES: Mapping[str, str] = {"Minimize": "min", "Maximize": "max"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sought:
    """What counts, and what is varied."""

    metric: str
    """What counts."""
    mode: str
    """``min`` or ``max``."""
    read: Mapping[str, Callable[[str], Value]]
    """Of each parameter by its name: returns the value that the service writes so."""


def of_sweep(sweep: SweepWorkload) -> Sought:
    """Return what a sweep looks for."""
    return Sought(
        metric=sweep.metric, mode=sweep.mode, read={name: parameter.read for name, parameter in sweep.space.items()}
    )


def described(answer: Mapping[str, Any]) -> Sought:
    """Return what a tuning job looks for, by what Describe answers.

    Raises:
        InvalidRequest: It has several definitions, which raysm sends none of.
    """
    config = answer["HyperParameterTuningJobConfig"]
    objective = config.get("HyperParameterTuningJobObjective")
    if objective is None:
        raise InvalidRequest(
            f"the tuning job {answer['HyperParameterTuningJobName']} has several definitions with an objective each; "
            "look at it by the SDK that sent it"
        )
    kinds: Mapping[str, Callable[[str], Value]] = {
        "IntegerParameterRanges": int,
        "ContinuousParameterRanges": float,
        "CategoricalParameterRanges": _category,
    }
    ranges = config.get("ParameterRanges") or {}
    return Sought(
        metric=objective["MetricName"],
        mode=MODES[objective["Type"]],
        read={item["Name"]: read for kind, read in kinds.items() for item in ranges.get(kind) or ()},
    )


def _category(text: str) -> Value:
    # Of a sweep a text that would read as JSON is written in quotation marks; what is no JSON is a text.
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, str | int | float) else text
