"""How a tuning job chooses what to try: one file a strategy, and one line here."""

import pkgutil
from collections.abc import Mapping
from typing import Any

from raysm.local.server.tuning.strategies.strategy import Strategy

__all__ = ["STRATEGIES", "strategy_of"]

STRATEGIES: Mapping[str, str] = {
    "Random": "raysm.local.server.tuning.strategies.random:RandomSearch",
    "Grid": "raysm.local.server.tuning.strategies.grid:GridSearch",
    "Hyperband": "raysm.local.server.tuning.strategies.hyperband:Hyperband",
    "Bayesian": "raysm.local.server.tuning.strategies.bayesian:BayesianSearch",
}
"""By the request's Strategy; imported on first use, since one of them needs NumPy."""


def strategy_of(config: Mapping[str, Any]) -> type[Strategy]:
    """Return the strategy that a HyperParameterTuningJobConfig names, one of those that the service model knows."""
    strategy: type[Strategy] = pkgutil.resolve_name(STRATEGIES[config["Strategy"]])
    return strategy
