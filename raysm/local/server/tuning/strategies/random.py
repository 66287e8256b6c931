"""Random: each trial by itself, so that any number of them may run at a time and a seed repeats them all."""

from raysm.local.server.tuning.strategies.strategy import Strategy

__all__ = ["RandomSearch"]


class RandomSearch(Strategy):
    """What every strategy does unless it knows better."""
