"""Functions of the user, pickled here and called in the cluster."""

import contextlib
import functools
import hashlib
import importlib
import inspect
import io
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar

from raysm.core.client.source.package import late_source, own_modules, unpicklable_part
from raysm.core.protocol.modules import WithModules, shared
from raysm.core.protocol.parcels import Pickled, Piece
from raysm.core.protocol.source import Source
from raysm.core.request import Workload
from raysm.errors import InvalidRequest, MissingDependency

_NO_FILE = "<dynamic-code>"
"""cloudpickle 3.1.3 and later write this in place of the file name of code."""


def title_of(fn: Callable[..., Any], default: str = "function") -> str:
    """Return the name of a function for messages; ``default`` if it has none."""
    name: str = getattr(fn, "__name__", default)
    return name


class PickledCall:
    """Base of workloads that are a pickled call: ``function(*args, **kwargs)``."""

    _workload: Workload
    default_title: ClassVar[str] = "function"

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._call = function, args, dict(kwargs)

    def workload(self) -> Workload:
        return self._workload

    def pickled(self) -> bytes:
        """Return cloudpickle's bytes of the call.

        The user's own modules, which are beside the function's and not installed, are pickled by
        value, because the instances do not have them; those of ``source()`` are pickled by name.
        """
        return pickled_call(*self._call, source=self.source())

    def source(self) -> Source | None:
        return late_source(self._call[0])

    def title(self) -> str:
        return title_of(self._call[0], self.default_title)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({name_of(self._call[0])})"


def check_function(fn: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Check that ``fn`` is a function that takes these arguments.

    Raises:
        InvalidRequest: It is not.
    """
    if not callable(fn):
        raise InvalidRequest(f"the first argument must be a function, got {fn!r}")
    check_call("the function", fn, args, kwargs)


def check_call(
    kind: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    refusal: str = "does not take these arguments",
) -> None:
    try:
        signature = inspect.signature(fn)
    except ValueError:  # a built-in without a signature
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        takes = signature.replace(return_annotation=inspect.Signature.empty)
        raise InvalidRequest(f"{kind} {name_of(fn)} {refusal}: {error}; it takes {takes}") from None


def pickled_call(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    what: str | None = None,
    into: Pickled | None = None,
    source: Source | None = None,
) -> bytes:
    """Return cloudpickle's bytes of a call, which messages call ``what``.

    The user's own modules are pickled by value, and by name if their files are in ``source``, which
    is sent too.
    """
    with pickling(fn, source=source) as pickled:
        try:
            return (
                pickled((fn, args, kwargs)) if into is None else pickled((fn, args, kwargs), into)
            )
        except Exception as error:  # pickling runs the arguments' own code
            function = fn.function if isinstance(fn, WithModules) else fn
            part = unpicklable_part(function, args, kwargs, pickled)
            where = "" if part is None else f"{part}: "
            named = what or f"{name_of(fn)} or one of its arguments"
            raise InvalidRequest(
                f"{named} cannot be pickled: {where}{type(error).__name__}: {error}; "
                "open files and locks inside of it"
            ) from error


def parcel_of_call(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    what: str | None = None,
) -> list[Piece]:
    """Return a call with its source, as a parcel in pieces: large buffers are not copied."""
    pickled = Pickled()
    call_with_source(fn, args, kwargs, what=what, into=pickled)
    return pickled.parcel()


def call_with_source(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    what: str | None = None,
    into: Pickled | None = None,
) -> bytes:
    """Return a call like ``pickled_call``, and the modules that functions import when they run.

    A job has these modules as files; a session gets them with each call.
    """
    source = late_source(fn)
    if source is None:
        return pickled_call(fn, args, kwargs, what=what, into=into)
    sent: Any = WithModules(fn, source.files)
    functools.update_wrapper(sent, fn)
    return pickled_call(sent, args, kwargs, what=what, into=into, source=source)


@contextlib.contextmanager
def pickling(
    fn: Callable[..., Any],
    on_object: Callable[[Any], None] = lambda item: None,
    source: Source | None = None,
) -> Iterator[Callable[..., bytes]]:
    """Yield a function that pickles a value, or pickles it into a ``Pickled``.

    Modules of ``source`` are pickled by name.
    """
    try:
        import cloudpickle
    except ImportError as error:
        raise MissingDependency(
            "functions need cloudpickle: python3 -m pip install cloudpickle"
        ) from error
    by_value = cloudpickle.list_registry_pickle_by_value()
    # By name, because a module may be imported under two names, as multiprocessing does with the
    # main module.
    sent = set() if source is None else {path.resolve() for path in source.files.values()}
    modules = {
        module.__name__: module
        for module in own_modules(fn)
        if module.__name__ not in by_value and Path(str(module.__file__)).resolve() not in sent
    }
    for module in modules.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield lambda value, into=None: _pickled(value, cloudpickle, on_object, into)
    finally:
        # The registry is the whole process's, and the user may pickle other things.
        for module in modules.values():
            cloudpickle.unregister_pickle_by_value(module)


PLAIN = (str, bytes, int, float, type(None))
"""Types of values that need none of the user's modules."""


@functools.lru_cache(maxsize=1)
def _has_own_modules(count: int, last: str) -> bool:
    """Return whether the program has modules of its own, as long as no other module is imported."""
    return any(True for _ in own_modules(object))


def pickled_value(value: object, what: str = "it") -> bytes:
    import cloudpickle

    try:
        # A map pickles each of its items.
        if type(value) in PLAIN or not _has_own_modules(
            len(sys.modules), next(reversed(sys.modules))
        ):
            return _pickled(value, cloudpickle)
        with pickling(type(value)) as pickled:
            return pickled(value)
    except Exception as error:  # pickling runs the value's own code
        kind = type(value).__name__
        raise InvalidRequest(
            f"{what}, a {kind}, cannot be pickled: {type(error).__name__}: {error}"
        ) from error


def _pickled(
    value: object,
    cloudpickle: Any,
    on_object: Callable[[Any], None] = lambda item: None,
    into: Pickled | None = None,
) -> bytes:
    """Pickle ``value``: modules by name, and code with its file's name, which tracebacks need.

    cloudpickle pickles only plain modules by name. It would copy ``torch.classes``, whose type is a
    subclass, with every function that uses torch and anything named ``classes``.
    """

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, item: Any) -> Any:
            on_object(item)
            if (
                isinstance(item, ModuleType)
                and type(item) is not ModuleType
                and item.__name__ in sys.modules
            ):
                return importlib.import_module, (item.__name__,)
            if isinstance(item, CodeType):
                rebuild, parts = self.dispatch_table[CodeType](item)
                return rebuild, tuple(
                    item.co_filename if part == _NO_FILE else part for part in parts
                )
            reduction = super().reducer_override(item)
            return shared(item, reduction) if isinstance(item, type) else reduction

    if into is not None:
        Pickler(into, protocol=5, buffer_callback=into.take_buffer).dump(value)
        return b""
    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def code_digest(fn: Callable[..., Any]) -> str:
    try:
        return hashlib.sha256(inspect.getsource(inspect.unwrap(fn)).encode()).hexdigest()
    except (TypeError, OSError, ValueError, tokenize.TokenError):
        return ""


def name_of(fn: Callable[..., Any]) -> str:
    module = getattr(fn, "__module__", None)
    name = getattr(fn, "__qualname__", type(fn).__name__)
    return f"{module}.{name}" if module and module != "__main__" else str(name)
