"""The patterns of botocore's service models, which are written for Java, as Python's: one reading for both sides."""

import functools
import re
from collections.abc import Mapping

__all__ = ["compiled"]

CLASSES: Mapping[str, str] = {r"\p{L}": r"\w", r"\p{N}": r"\w", r"\p{Z}": r"\s", r"\p{Alnum}": "a-zA-Z0-9"}
"""Java's classes, which the API uses inside brackets only; Python has no such names for them."""

ANYTHING = re.compile(r".*", re.DOTALL)


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return an API's pattern for Python; one that cannot be said there matches everything.

    ``.*`` stands in the model where the API takes any text, line breaks too; ``.+`` takes one line.
    """
    for java, python in CLASSES.items():
        pattern = pattern.replace(java, python)
    try:
        return re.compile(pattern, re.DOTALL if ".*" in pattern else 0)
    except re.error:  # a range of UTF-16, in a part of the API that is not used here
        return ANYTHING
