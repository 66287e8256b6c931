"""Functions as workloads: what stands in the request for the pickle that travels beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from raysm.request.options import decides
from raysm.request.parameters import Parameters
from raysm.request.pickled import Pickled
from raysm.request.workload import Workload, Wrapper

__all__ = ["PickledFunction", "PickledWorkload"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledWorkload(Pickled, Workload):
    """What every workload says whose code travels as a pickle."""

    packages: ClassVar[tuple[str, ...]] = ("cloudpickle",)

    name: str
    """For people: ``module.function``."""
    python: str
    """Version of the Python that pickled it, ``3.11``: another one cannot be trusted to read it."""

    # For people: the pickle is what counts, and its digest with it.
    arguments: Mapping[str, Any] = field(default_factory=dict, metadata=decides(result=False))
    """What it is called with, as ``raysm.request.parameters`` shows it."""
    code: str = field(default="", metadata=decides(result=False))
    """SHA-256 of the function's own text; empty where it has none."""

    @property
    def parameters(self) -> Parameters:
        """Its ``arguments``."""
        return self.arguments

    @property
    def code_digest(self) -> str:
        """Its ``code``."""
        return self.code


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledFunction(PickledWorkload):
    """A function with its arguments, pickled by cloudpickle into the payload; its value is the job's result."""

    runner: ClassVar[str] = "raysm.workloads.runners.function:FunctionRunner"
    label: ClassVar[str] = "a function"
    keeps: ClassVar[str] = "the value of the function"
    wrapper: ClassVar[Wrapper | None] = Wrapper("function", "raysm.Function(fn, *args, **kwargs)")
    returns_value: ClassVar[bool] = True
