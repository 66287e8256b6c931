"""Functions as workloads: they are pickled here and called on the head of the cluster."""

import contextlib
import hashlib
import importlib
import inspect
import io
import sys
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

from raysm.client.source.package import culprit_of_call, late_source, own_modules
from raysm.client.units import python_version
from raysm.contract.source import Source
from raysm.errors import InvalidRequest, MissingDependency
from raysm.request import PickledFunction
from raysm.request.workload import of_arguments

__all__ = [
    "Function",
    "arguments_of",
    "code_digest",
    "name_of",
    "pickled_call",
    "pickled_value",
    "pickling",
]

_NO_FILE = "<dynamic-code>"
"""What cloudpickle, from 3.1.3 on, writes in place of the file that code is from."""


class Function:
    """A workload: ``fn(*args, **kwargs)``, called once, on the head, with Ray initialised; its value is the result.

    Attributes:
        fn: The function.
        args: Its positional arguments.
        kwargs: Its named arguments.
    """

    def __init__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Check that the function takes these arguments.

        Raises:
            InvalidRequest: It is no function, or does not take them.
        """
        if not callable(fn):
            raise InvalidRequest(f"Function: the first argument must be a function, got {fn!r}")
        try:
            # Now, before a cluster is formed for what ends in a TypeError.
            inspect.signature(fn).bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidRequest(f"Function: {name_of(fn)} does not take these arguments: {error}") from None
        except ValueError:
            pass  # a built-in without a signature: the call itself will tell
        self.fn, self.args, self.kwargs = fn, args, kwargs

    def workload(self) -> PickledFunction:
        """Return what stands for it in the request."""
        return PickledFunction(
            name=name_of(self.fn),
            python=python_version(),
            arguments=arguments_of(self.fn, self.args, self.kwargs),
            code=code_digest(self.fn),
        )

    def pickled(self) -> bytes:
        """Return cloudpickle's bytes of function and arguments.

        The user's own modules, those beside the function's and no installed package, travel by value: the instances do
        not have them.

        Raises:
            InvalidRequest: Something of it cannot be pickled.
        """
        return pickled_call(self.fn, self.args, self.kwargs)

    def source(self) -> Source | None:
        """Return the user's own modules that the function imports when it is called: they travel as files."""
        return late_source(self.fn)

    def title(self) -> str:
        """Return the function's name, which a job has that is given none."""
        return getattr(self.fn, "__name__", "function")

    def __repr__(self) -> str:
        return f"Function({name_of(self.fn)})"


def pickled_call(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, what: str | None = None
) -> bytes:
    """Return cloudpickle's bytes of a call; the user's own modules travel by value, as ``Function.pickled`` says.

    Args:
        fn: The function.
        args: Its positional arguments.
        kwargs: Its named arguments.
        what: What messages call it; None is the function and its arguments.

    Raises:
        InvalidRequest: Something of it cannot be pickled.
        MissingDependency: cloudpickle is not installed.
    """
    with pickling(fn) as pickled:
        try:
            return pickled((fn, args, kwargs))
        except Exception as error:  # pickling runs the arguments' own code, which may raise anything
            culprit = culprit_of_call(fn, args, kwargs, pickled)
            where = "" if culprit is None else f"{culprit[0]} is a {type(culprit[1]).__name__}: "
            named = what or f"{name_of(fn)} or one of its arguments"
            raise InvalidRequest(
                f"{named} cannot be pickled: {where}{type(error).__name__}: {error}; "
                "make open files, locks and connections inside the function"
            ) from error


@contextlib.contextmanager
def pickling(
    fn: Callable[..., Any], meet: Callable[[Any], None] = lambda item: None
) -> Iterator[Callable[[object], bytes]]:
    """Yield what pickles a value; the user's own modules, those beside the function's, travel by value meanwhile.

    Args:
        fn: The function.
        meet: Is told of each object that is no plain data, and may raise.

    Raises:
        MissingDependency: cloudpickle is not installed.
    """
    try:
        import cloudpickle
    except ImportError as error:
        raise MissingDependency("functions need cloudpickle: python3 -m pip install cloudpickle") from error
    # What the user registered stays registered in the end.
    by_value = cloudpickle.list_registry_pickle_by_value()
    # By name: one that is there under two, as multiprocessing has the program's, is registered once.
    modules = {module.__name__: module for module in own_modules(fn) if module.__name__ not in by_value}
    for module in modules.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield lambda value: _pickled(value, cloudpickle, meet)
    finally:
        # The registry is the whole process's: what the user pickles otherwise is to stay as it was.
        for module in modules.values():
            cloudpickle.unregister_pickle_by_value(module)


def pickled_value(value: object, what: str = "it") -> bytes:
    """Return cloudpickle's bytes of a value.

    Args:
        value: Any.
        what: What messages call it.

    Raises:
        InvalidRequest: It cannot be pickled; the message says what in it.
    """
    import cloudpickle

    try:
        return _pickled(value, cloudpickle)
    except Exception as error:  # its own code
        culprit = culprit_of_call(pickled_value, (value,), {}, lambda part: _pickled(part, cloudpickle))
        part, kind = ("", type(value)) if culprit is None else (culprit[0], type(culprit[1]))
        where = f"{what}{part.removeprefix('args[0]')}, a {kind.__name__},"
        raise InvalidRequest(f"{where} cannot be pickled: {type(error).__name__}: {error}") from error


def _pickled(value: object, cloudpickle: Any, meet: Callable[[Any], None] = lambda item: None) -> bytes:
    """Return ``value`` pickled, with modules by their names also where they are of a class of their own.

    cloudpickle knows plain modules only, and takes along ``torch.classes``, which is none, with every function that
    uses torch and has anything by the name ``classes``. And with the file that code is from, which a traceback names.
    """

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, item: Any) -> Any:
            meet(item)
            if isinstance(item, ModuleType) and type(item) is not ModuleType and item.__name__ in sys.modules:
                return importlib.import_module, (item.__name__,)
            if isinstance(item, CodeType):
                rebuild, parts = self.dispatch_table[CodeType](item)
                return rebuild, tuple(item.co_filename if part == _NO_FILE else part for part in parts)
            return super().reducer_override(item)

    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def arguments_of(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what a call's arguments are, by the names of the function's parameters, defaults too."""
    try:
        signature = inspect.signature(fn)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):  # a built-in without a signature
        return of_arguments({f"argument {number}": value for number, value in enumerate(args, 1)} | kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        # def train(**options): its caller knows no "options".
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= arguments.pop(name)
    return of_arguments(arguments)


def code_digest(fn: Callable[..., Any]) -> str:
    """Return the SHA-256 of a function's own text; empty where there is none, as of a built-in."""
    try:
        return hashlib.sha256(inspect.getsource(inspect.unwrap(fn)).encode()).hexdigest()
    except (TypeError, OSError, ValueError):
        return ""


def name_of(fn: Callable[..., Any]) -> str:
    """Return a function's name for people: ``module.function``."""
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", type(fn).__name__)
    return f"{module}.{name}" if module and module != "__main__" else str(name)
