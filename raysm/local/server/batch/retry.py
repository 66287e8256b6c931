"""Whether a job is tried again: its retryStrategy and how an attempt ended flow in, yes or no flows out. Pure.

https://docs.aws.amazon.com/batch/latest/APIReference/API_RetryStrategy.html
"""

from collections.abc import Mapping
from typing import Any

from raysm.local.server.batch.model import client_error

__all__ = ["check_strategy", "is_again"]

MOST_ATTEMPTS = 10
MOST_RULES = 5

Ending = Mapping[str, str | None]
"""By the condition that asks for it: ``onExitCode``, ``onReason``, ``onStatusReason``."""


def check_strategy(strategy: Mapping[str, Any] | None) -> None:
    """Refuse what no model says cannot be.

    Raises:
        ApiError: There are too many attempts or rules.
    """
    attempts = (strategy or {}).get("attempts", 1)
    if not 1 <= attempts <= MOST_ATTEMPTS:
        raise client_error(f"retryStrategy.attempts is 1 to {MOST_ATTEMPTS}, got {attempts}")
    rules = (strategy or {}).get("evaluateOnExit") or []
    if len(rules) > MOST_RULES:
        raise client_error(f"retryStrategy.evaluateOnExit has at most {MOST_RULES} entries, got {len(rules)}")


def is_again(strategy: Mapping[str, Any] | None, tries: int, ending: Ending) -> bool:
    """Whether there is one more attempt after ``tries``, of which the last one failed with ``ending``."""
    strategy = strategy or {}
    if tries >= strategy.get("attempts", 1):
        return False
    for rule in strategy.get("evaluateOnExit") or []:
        conditions = {name: pattern for name, pattern in rule.items() if name != "action" and pattern is not None}
        # All of one rule, and one of all rules.
        if all(_matches(pattern, ending.get(name)) for name, pattern in conditions.items()):
            return bool(rule["action"].upper() == "RETRY")
    # Where no rule speaks of it, the attempts do.
    return True


def _matches(pattern: str, text: str | None) -> bool:
    # No glob in full: an asterisk stands at the end alone, and says that the beginning is enough.
    if pattern.endswith("*"):
        return (text or "").startswith(pattern[:-1])
    return text == pattern
