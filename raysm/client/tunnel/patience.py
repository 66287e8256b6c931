"""How long to try again, and how fast: what flows in are failures and successes, what flows out are pauses."""

__all__ = ["PATIENCE_S", "Patience"]

PATIENCE_S = 300.0
"""How long to try to go on with a session, where the network is away."""
FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 5.0
"""Between two tries, as in the official client."""


class Patience:
    """Tries of one thing; a machine without a clock.

    Attributes:
        pause_s: Seconds until the next one.
    """

    def __init__(self) -> None:
        """Begin with no failure."""
        self._since_s: float | None = None
        self.pause_s = 0.0

    def failed(self, now_s: float) -> None:
        """One has failed: the next one comes later."""
        # From the first of a row: a try that takes long is part of what one waits for.
        self._since_s = now_s if self._since_s is None else self._since_s
        self.pause_s = min(max(FIRST_PAUSE_S, 2 * self.pause_s), MOST_PAUSE_S)

    def succeeded(self) -> None:
        """One has succeeded: what failed before is forgotten."""
        self._since_s = None
        self.pause_s = 0.0

    def is_over(self, now_s: float) -> bool:
        """Whether nothing has succeeded for so long that nothing will."""
        return self._since_s is not None and now_s - self._since_s > PATIENCE_S
