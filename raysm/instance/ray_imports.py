"""Import Ray without the packages that it imports for rare cases; this takes 45 % less time.

While Ray is imported, a stand-in takes the place of each. It imports the package when Ray first
uses it; the user's own imports find the package itself. Run by its path (``python ray_imports.py
PROGRAM …``), it runs a program of Ray as ``python PROGRAM …`` does. It imports only the standard
library, because a runtime environment may have another Python.
"""

import builtins
import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import itertools
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

RARE = ("requests", "jsonschema", "yaml", "tqdm", "tqdm.auto", "wcwidth")
USAGE = "ray._common.usage.usage_lib"


WORKERS = ("default_worker.py", "setup_worker.py")
"""Ray's programs that run tasks and actors."""


def load_by_path(name: str) -> types.ModuleType:
    """Return a module of ``raysm.core.protocol`` without importing raysm."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.path.join(folder, "core", "protocol", f"{name}.py")
    loader = importlib.machinery.SourceFileLoader(f"raysm_{name}", path)
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


def show_stacks(role: str) -> None:
    """Let ``raysm stacks`` see this process; see ``stack_signal``."""
    load_by_path("stack_signal").register(role)


class WrapFunction:
    """Put this into ``sys.meta_path`` to wrap a function of a module once that is imported."""

    def __init__(
        self, module: str, function: str, wrap: Callable[[types.ModuleType], Callable[..., Any]]
    ) -> None:
        """``wrap`` is called with the module, and returns what takes the function's place."""
        self._module = module
        self._function = function
        self._wrap = wrap

    def find_spec(self, name: str, path: Any, *_: Any) -> Any:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_and_wrap(module: types.ModuleType) -> None:
                execute(module)
                if hasattr(module, self._function):
                    setattr(module, self._function, self._wrap(module))

            spec.loader.exec_module = execute_and_wrap
        return spec


def name_ranks() -> WrapFunction:
    """Return what gives a process that makes torch's process group its rank as its role.

    Ray Train makes the group in its workers, and users make it in actors of their own.
    """
    return WrapFunction("torch.distributed.distributed_c10d", "init_process_group", _naming)


def _naming(distributed: types.ModuleType) -> Callable[..., Any]:
    """Return ``init_process_group`` with the role set first, because ranks may hang in it."""
    init = distributed.init_process_group

    @functools.wraps(init)
    def init_process_group(*args: Any, **named: Any) -> Any:
        rank = named.get("rank", -1)
        # torch reads the variable, too.
        known = str(rank) if rank != -1 else os.environ.get("RANK", "")  # noqa: TID251
        if known.isdigit():
            show_stacks(f"rank {known}")
            c10d = sys.modules["torch"]._C._distributed_c10d
            load_by_path("answers").answer_with_collectives(c10d)
        return init(*args, **named)

    return init_process_group


def show_coroutines() -> WrapFunction:
    """Return what lets the coroutines of Ray's asynchronous actors be read."""
    return WrapFunction("ray._private.async_compat", "get_new_event_loop", _showing)


def _showing(async_compat: types.ModuleType) -> Callable[..., Any]:
    get_new_event_loop = async_compat.get_new_event_loop
    answers = load_by_path("answers")

    @functools.wraps(get_new_event_loop)
    def get_shown_event_loop() -> Any:
        loop = get_new_event_loop()
        answers.answer_with_coroutines(loop)
        return loop

    return get_shown_event_loop


def check_reports() -> WrapFunction:
    """Return what makes ``ray.train.report`` say that a value is not finite."""
    return WrapFunction("ray.train.v2.api.train_fn_utils", "report", _checking)


def _checking(train: types.ModuleType) -> Callable[..., Any]:
    report = train.report
    numbers = itertools.count(1)

    @functools.wraps(report)
    def report_and_check(metrics: Any, *args: Any, **named: Any) -> Any:
        # A runtime environment may have another Python, without raysm.
        with contextlib.suppress(ImportError):
            from raysm.instance.work.ray_train import report_not_finite

            # Before Ray Train keeps a checkpoint of this moment.
            if isinstance(metrics, dict):
                rank = train.get_context().get_world_rank()
                report_not_finite(metrics, next(numbers), rank)
        return report(metrics, *args, **named)

    return report_and_check


class Later(types.ModuleType):
    """Stands for the module of its name until one of its attributes is used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def importing_later() -> Iterator[None]:
    # Ray does without some of them if they are not installed.
    absent = [
        name
        for name in RARE
        if name not in sys.modules and importlib.util.find_spec(name.partition(".")[0])
    ]
    for name in absent:
        sys.modules[name] = Later(name)
        if (package := name.rpartition(".")[0]) in absent:
            setattr(sys.modules[package], name.rpartition(".")[2], sys.modules[name])
    try:
        yield
    finally:
        for name in absent:
            if isinstance(sys.modules.get(name), Later):
                del sys.modules[name]


class LeanRay:
    """Put this into ``sys.meta_path``: the first import of Ray then defers these packages."""

    def find_spec(self, name: str, *_: Any) -> Any:
        if name != "ray" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        if spec is not None:
            execute = spec.loader.exec_module

            @importing_later()
            def execute_with_usage(module: types.ModuleType) -> None:
                execute(module)
                # Each worker and driver would import it when it connects, and with it two of the
                # packages.
                with contextlib.suppress(Exception):
                    importlib.import_module(USAGE)

            spec.loader.exec_module = execute_with_usage
        return spec


def import_ray_lean() -> None:
    sys.meta_path.insert(0, LeanRay())


def main(arguments: list[str]) -> None:
    import_ray_lean()
    program = arguments[0]
    sys.argv[:] = arguments
    if os.path.basename(program) in WORKERS:
        show_stacks("worker")
        sys.meta_path[:0] = [name_ranks(), show_coroutines(), check_reports()]
    # Unless -P was given, this program's folder comes first, whose modules no import of Ray may
    # find.
    if sys.path[:1] == [os.path.dirname(os.path.abspath(__file__))]:
        sys.path[0] = os.path.dirname(os.path.abspath(program))
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=program, __builtins__=builtins)
    sys.modules["__main__"] = module
    with open(program, "rb") as file:
        exec(compile(file.read(), program, "exec", dont_inherit=True), module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1:])
