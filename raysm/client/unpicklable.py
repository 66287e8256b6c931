"""Which part of a value it is that cannot be pickled: what flows in is the value, what flows out is its path.

``args[0]['model'].lock`` says where to look; cloudpickle's own message says only of which class the part is.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["Culprit", "culprit_of_call"]

DEEPEST = 12
"""Levels that are looked at; what lies deeper is named by the level above it."""

WIDEST = 2_000
"""Parts of one value that are looked at: each of them is pickled."""

Culprit = tuple[str, Any]
"""The path, and what lies there."""


def culprit_of_call(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    pickled: Callable[[Any], object],
    is_whole: Callable[[Any], bool] = lambda value: False,
) -> Culprit | None:
    """Return the innermost part of a call that cannot be pickled; None where each part by itself can.

    Args:
        fn: The function.
        args: Its positional arguments.
        kwargs: Its named arguments.
        pickled: Pickles one value, or raises.
        is_whole: Whether a value is named itself, and not a part of it that nobody but its author knows.
    """
    parts = [(f"args[{number}]", value) for number, value in enumerate(args)]
    parts += [(name, value) for name, value in kwargs.items()]
    name = getattr(fn, "__name__", "the function")

    def pieces(path: str, value: Any) -> Iterator[Culprit]:
        return iter(()) if is_whole(value) else _parts_of(path, value)

    return _first([*parts, (name, fn)], pickled, pieces, 0, set())


def _first(
    parts: "list[Culprit] | Iterator[Culprit]",
    pickled: Callable[[Any], object],
    pieces: Callable[[str, Any], Iterator[Culprit]],
    depth: int,
    seen: set[int],
) -> Culprit | None:
    for number, (path, value) in enumerate(parts):
        if number >= WIDEST:
            return None
        if id(value) in seen or _is_well(value, pickled):
            continue
        # A value may hold itself.
        seen.add(id(value))
        inner = _first(pieces(path, value), pickled, pieces, depth + 1, seen) if depth < DEEPEST else None
        return inner or (path, value)
    return None


def _is_well(value: object, pickled: Callable[[Any], object]) -> bool:
    try:
        pickled(value)
    except Exception:  # its own code
        return False
    return True


def _parts_of(path: str, value: Any) -> Iterator[Culprit]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"{path}[{number}]", item) for number, item in enumerate(value))
    elif inspect.ismethod(value):
        yield f"{path}.__self__", value.__self__
    elif inspect.isfunction(value):
        yield from _parts_of_function(path, value)
    else:
        yield from ((f"{path}.{name}", item) for name, item in getattr(value, "__dict__", {}).items())


def _parts_of_function(path: str, function: Any) -> Iterator[Culprit]:
    variables = inspect.getclosurevars(function)
    for name, item in {**variables.nonlocals, **variables.globals}.items():
        yield f"{name} (used by {path})", item
    for name, item in (function.__kwdefaults__ or {}).items():
        yield f"{name} (a default of {path})", item
    for number, item in enumerate(function.__defaults__ or ()):
        yield f"default {number} of {path}", item
