"""Methods that show what they return where they are printed without being called.

``job.status`` is an attribute and ``job.progress()`` is not; who types ``job.progress`` in a notebook wants to see it.
"""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

__all__ = ["printable"]

P = ParamSpec("P")
R = TypeVar("R")


class printable(Generic[P, R]):  # noqa: N801 - a decorator, as property is
    """Decorates a method that needs no arguments; the method itself is called as any other."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        """Wrap ``method``."""
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Callable[Concatenate[Any, P], R]: ...

    @overload
    def __get__(self, owner: object, kind: type) -> Callable[P, R]: ...

    def __get__(self, owner: object, kind: type) -> Callable[..., R]:
        """Return the method of ``owner``, or, asked of the class, the function."""
        return self._method if owner is None else _Bound(self._method, owner)


class _Bound(Generic[R]):
    def __init__(self, method: Callable[..., R], owner: object) -> None:
        self.__self__, self.__func__ = owner, method
        functools.update_wrapper(self, method)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self.__func__(self.__self__, *args, **kwargs)

    def __repr__(self) -> str:
        try:
            return repr(self())
        except Exception as error:  # a repr never raises
            return f"<{self.__func__.__qualname__}() cannot be shown: {error}>"
