"""A function as a workload, and the decorator ``raysm.remote``.

The function is pickled here and called on the head.
"""

import functools
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from raysm.core import features
from raysm.core.client.job.handle import Job
from raysm.core.client.options import SubmitKeywords, check_names
from raysm.core.client.source.function import PickledCall, check_function, code_digest, name_of
from raysm.core.client.submit import submit
from raysm.core.client.units import PYTHON_VERSION
from raysm.core.request.workload import arguments_of
from raysm.errors import InvalidRequest
from raysm.features.script.request import PickledFunction


class Function(PickledCall):
    """A workload: ``fn(*args, **kwargs)``, called once, on the head, with Ray initialised.

    Its value is the result.

    Attributes:
        fn: The function.
        args: Its positional arguments.
        kwargs: Its named arguments.
    """

    def __init__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Check that the function takes these arguments.

        Raises:
            InvalidRequest: It is not a function, or does not take them.
        """
        check_function(fn, args, kwargs)
        super().__init__(fn, args, kwargs)
        self.fn = fn
        self.args = args
        self.kwargs = kwargs

    def workload(self) -> PickledFunction:
        arguments = arguments_of(self.fn, self.args, self.kwargs)
        code = code_digest(self.fn)
        return PickledFunction(
            name=name_of(self.fn), python=PYTHON_VERSION, arguments=arguments, code=code
        )


if TYPE_CHECKING:
    from raysm.features.session.client.calls import Call

P = ParamSpec("P")
R = TypeVar("R")


class RemoteFunction(Generic[P, R]):
    """A function that can also run as a job: call it as before, or ``.submit(…)`` it."""

    def __init__(self, fn: Callable[P, R], options: SubmitKeywords) -> None:
        # For help and inspect it stays the same function.
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it here, in this process."""
        return self._fn(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> "RemoteFunction[P, R]": ...

    @overload
    def __get__(self, instance: object, owner: Any = None) -> "RemoteFunction[..., R]": ...

    def __get__(self, instance: object | None, owner: Any = None) -> Any:
        """Return the method of an instance, so that the decorator works in a class, too."""
        return (
            self
            if instance is None
            else RemoteFunction(MethodType(self._fn, instance), self._options)
        )

    def options(self, **options: Unpack[SubmitKeywords]) -> "RemoteFunction[P, R]":
        """Return the same function with more options of ``raysm.submit``, which override its own.

        Args:
            options: The keywords of ``raysm.submit``, as ``raysm.client.options.SubmitKeywords``
                lists them.

        Raises:
            InvalidRequest: ``raysm.submit`` takes no such option.
        """
        check_names(options)
        return RemoteFunction(self._fn, {**self._options, **options})

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> "Job | Call[R]":
        """Submit the call as a job; ``result()`` is the function's value, or raises its exception.

        Inside ``with raysm.Session(…)`` it is a call in that session, on the session's instances:
        the options of a job are not used there.
        """
        current_session = features.offered("current_session")
        session = None if current_session is None else current_session()
        if session is not None:
            call: Call[R] = session.submit(self._fn, *args, **kwargs)
            return call
        # The arguments go to Function, because the function's may have the names of options.
        return submit(Function(self._fn, *args, **kwargs), **self._options)

    def __repr__(self) -> str:
        return f"<raysm remote function {name_of(self._fn)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled by its parts, because a function that calls itself by its global name refers to
        # this object.
        return RemoteFunction, (self._fn, self._options)


@overload
def remote(fn: Callable[P, R], /) -> RemoteFunction[P, R]: ...


@overload
def remote(
    **options: Unpack[SubmitKeywords],
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...


def remote(fn: Callable[..., Any] | None = None, /, **options: Unpack[SubmitKeywords]) -> Any:
    """Decorate a function so that ``fn.submit(…)`` runs it as a job.

    It takes options, or none, as ``@raysm.remote``.

    Args:
        fn: The function, if the decorator has no options.
        options: The keywords of ``raysm.submit``, as ``raysm.client.options.SubmitKeywords`` lists
            them.

    Raises:
        InvalidRequest: ``raysm.submit`` takes no such option.
    """
    # Checked now, so that the traceback leads to the line of the decorator.
    check_names(options)

    def decorate(fn: Callable[P, R]) -> RemoteFunction[P, R]:
        if not callable(fn):
            raise InvalidRequest(f"raysm.remote decorates a function, got {fn!r}")
        return RemoteFunction(fn, options)

    return decorate if fn is None else decorate(fn)
