"""How a sweep looks where there are only characters: the best value so far, and where the good values lie. Pure."""

import math
from collections.abc import Sequence
from typing import Any

from raysm.contract.events import Trial

BARS = "▁▂▃▄▅▆▇█"

CELLS = 24
"""Columns of a bar."""

BEST_SHARE = 4
"""One in so many trials counts as good."""

LEAST = 4
"""Trials without which nothing is said."""


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return values as bars, at most ``width`` of them: of each stretch the last one."""
    if not values:
        return ""
    count = min(width, len(values))
    chosen = [values[(number + 1) * len(values) // count - 1] for number in range(count)]
    low, high = min(chosen), max(chosen)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round(scale * (value - low))] for value in chosen)


def where_good_lies(trials: Sequence[Trial]) -> list[str]:
    """Return a line for each parameter with a range: where the values of the best quarter of the trials lie in it.

    ``trials`` have a value and are sorted, the best first.
    """
    if len(trials) < LEAST:
        return []
    good = trials[: max(1, len(trials) // BEST_SHARE)]
    names = [name for name in dict.fromkeys(name for trial in trials for name in trial.params)]
    lines = {name: _line([t.params.get(name) for t in trials], [t.params.get(name) for t in good]) for name in names}
    longest = max(map(len, names), default=0)
    return [f"{name:<{longest}}  {line}" for name, line in lines.items() if line]


def _line(every: Sequence[Any], good: Sequence[Any]) -> str:
    if not all(type(value) in (int, float) for value in every) or min(every) >= max(every):
        return ""
    low, high = min(every), max(every)
    is_log = low > 0 and high / low >= 50
    counts = [0] * CELLS
    for value in good:
        place = math.log(value / low) / math.log(high / low) if is_log else (value - low) / (high - low)
        counts[min(CELLS - 1, int(place * CELLS))] += 1
    bars = "".join("·" if not count else BARS[round((len(BARS) - 1) * count / max(counts))] for count in counts)
    return f"{low:>9.3g} {bars} {high:<9.3g} best: {good[0]:.4g}"
