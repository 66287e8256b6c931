"""The best of a tile's rows while they are on the device: what products are filtered by, and what survivors go into."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from raysm.workloads.similarity.engines.cuda import scores as scores_on_gpu
from raysm.workloads.similarity.engines.cuda.panels import Cut, Panel, rounded_down
from raysm.workloads.similarity.engines.cuda.scores import decoded, encoded
from raysm.workloads.similarity.engines.protocol import Best

__all__ = ["LEAST", "DeviceBest", "PanelBest", "panel_best"]

LEAST = -65504.0
"""Of float16. No product comes near it: ``bounds`` keeps them below 2**14."""


@dataclass(slots=True)
class DeviceBest:
    """The best of a tile's rows, on the device."""

    keys: torch.Tensor
    """keys[n, k], less 2**63."""
    bounds: torch.Tensor
    """bounds[n], float32: scores that each row's k-th best is known to reach."""
    unseeded: list[bool]
    """Of each panel: whether rows may have no limit yet."""
    unserved: torch.Tensor
    """unserved[n]: nobody is looked for."""

    @classmethod
    def of(cls, best: Best, cut: Cut, device: torch.device) -> "DeviceBest":
        """Bring the best of a tile, in the panels of ``cut``, to the device."""
        starts = np.cumsum([0, *map(len, cut.parts)]).tolist()
        # A copy: seed raises these in place, and on a CPU the tensor would be the caller's own array.
        bounds = torch.from_numpy(np.array(best.lower_bounds)).to(device)
        return cls(
            keys=scores_on_gpu.from_host(best.keys, device),
            bounds=bounds,
            unseeded=[bool((best.lower_bounds[a:b] == -np.inf).any()) for a, b in pairwise(starts)],
            unserved=bounds == torch.inf,
        )


@dataclass(frozen=True, slots=True)
class PanelBest:
    """A panel's part of a ``DeviceBest``."""

    best_of_tile: DeviceBest
    """Of the whole tile."""
    at: int
    """Which panel."""
    some: slice
    """Its rows of the tile."""

    def limits(self, panel: Panel, other: Panel, squared: float, first: int = 0) -> torch.Tensor:
        """Return limits[n], float16, that the panel's products with the other one, from ``first`` on, have to reach.

        Who has a score t has a quotient of t less half a step at least; half a step is below 2**-23 t + 2**-149.
        """
        keys = self.best_of_tile.keys[self.some]
        kth = decoded(keys[:, -1])
        least = torch.maximum(kth, self.best_of_tile.bounds[self.some]).to(torch.float64)
        scaled = (least - least.abs() * 2.0**-23 - 2.0**-149 - squared) * (panel.scale * other.scale)
        # No score is above 1, see ``bounds``: behind k who have it, nobody with a higher index enters.
        behind = (keys[:, -1] & 0xFFFFFFFF) < other.start + first
        closed = self.best_of_tile.unserved[self.some] | ((kth >= 1) & behind)
        # The least finite number: the row itself, which stands at -inf in the product, is never let in.
        limits = rounded_down(torch.where(least.isinf(), -torch.inf, scaled)).clamp_(min=LEAST)
        return torch.where(closed, torch.inf, limits)

    def seed(self, near: torch.Tensor, panel: Panel, other: Panel, squared: float) -> None:
        """Learn from a product near[n, m] what the k-th best score of each row reaches at least."""
        k = self.best_of_tile.keys.shape[1]
        if not self.best_of_tile.unseeded[self.at] or near.shape[1] <= k:
            return
        unit = panel.scale * other.scale
        kth = torch.topk(near, k, dim=1).values[:, -1].to(torch.float64)
        cross = 3 * (panel.error * other.length.max() + panel.length * other.error.max())
        kth = kth - kth.abs() * 2.0**-10 - 2.0**-24 - cross
        least = kth / unit - panel.spare - other.spare.max() + squared
        least = (least - least.abs() * 2.0**-22 - 2.0**-140).to(torch.float32)
        bounds = self.best_of_tile.bounds[self.some]
        torch.maximum(bounds, torch.where(least.isnan(), -torch.inf, least), out=bounds)
        self.best_of_tile.unseeded[self.at] = False

    def take(self, rows: torch.Tensor, scores: torch.Tensor, numbers: torch.Tensor) -> None:
        """Merge scored pairs: rows of the panel, and the numbers of their neighbors."""
        keys, bounds = self.best_of_tile.keys[self.some], self.best_of_tile.bounds[self.some]
        new = encoded(scores, numbers)
        better = (new < keys[rows, -1]) & (scores >= bounds[rows])
        rows, new = rows[better], new[better]
        if not len(rows):
            return
        k = keys.shape[1]
        counts = torch.bincount(rows, minlength=len(keys))
        some = counts.nonzero()[:, 0]
        everyone = torch.cat([new, keys[some].flatten()])
        whose = torch.cat([rows, some.repeat_interleave(k)])
        # By row, then by key: two stable sorts. Each row's then lie together, its k best first.
        order = torch.argsort(everyone, stable=True)
        order = order[torch.argsort(whose[order], stable=True)]
        each = counts[some] + k
        starts = each.cumsum(0) - each
        keys[some] = everyone[order[starts[:, None] + torch.arange(k, device=order.device)]]


def panel_best(best: DeviceBest, cut: Cut, at: int) -> PanelBest:
    """Return the part of one panel."""
    start = sum(map(len, cut.parts[:at]))
    return PanelBest(best, at, slice(start, start + len(cut.parts[at])))
