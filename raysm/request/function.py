"""Functions as workloads: what stands in the request for the pickle that travels beside it."""

from dataclasses import dataclass
from typing import ClassVar

from raysm.request.workload import Workload, Wrapper

__all__ = ["PickledFunction", "PickledWorkload"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledWorkload(Workload):
    """What every workload says whose code travels as a pickle."""

    packages: ClassVar[tuple[str, ...]] = ("cloudpickle",)

    name: str
    """For people: ``module.function``."""
    python: str
    """Version of the Python that pickled it, ``3.11``: another one cannot be trusted to read it."""

    @property
    def pickled_by(self) -> str:
        """Its ``python``."""
        return self.python

    @property
    def title(self) -> str:
        """Its ``name``."""
        return self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledFunction(PickledWorkload):
    """A function with its arguments, pickled by cloudpickle into the payload; its value is the job's result."""

    runner: ClassVar[str] = "raysm.workloads.runners.function:FunctionRunner"
    label: ClassVar[str] = "a function"
    keeps: ClassVar[str] = "the value of the function"
    wrapper: ClassVar[Wrapper | None] = Wrapper("function", "raysm.Function(fn, *args, **kwargs)")
    returns_value: ClassVar[bool] = True
