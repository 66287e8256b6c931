"""An engine of a device that only some instances have: the GPUs' today.

What flows in is the word that somebody asks for an engine by; what flows out is the engine, or why it cannot be had in
this process. Whoever has to treat such an engine differently asks it, and compares no names.
"""

from collections.abc import Callable
from dataclasses import dataclass

from raysm.errors import InvalidRequest
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.engines.protocol import Engine
from raysm.workloads.similarity.kernels.build import Unavailable

__all__ = ["CUDA", "Accelerator"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerator:
    """How an engine that needs a device is asked for, and had."""

    name: str
    """The whole word that asks for it: a part of it is none, or ``a`` would mean the GPUs."""
    make: Callable[[int], Engine[Tile]]
    """Returns the engine for rows of so many columns; raises ``Unavailable`` or ``ImportError``."""

    def is_meant_by(self, word: str | None) -> bool:
        """Return whether ``word`` asks for this engine; None asks for none."""
        return word is not None and word.lower() == self.name

    def engine(self, columns: int) -> Engine[Tile]:
        """Return the engine of this process's device.

        Raises:
            InvalidRequest: It cannot be had here; the message says why.
        """
        try:
            return self.make(columns)
        except ImportError as error:
            raise InvalidRequest(
                f"the engine {self.name!r} needs {error.name or 'torch'}, which is missing here"
            ) from error
        except Unavailable as error:
            raise InvalidRequest(f"the engine {self.name!r} cannot be had here: {error}") from error

    def why_not_here(self, columns: int) -> str:
        """Return why this process's device cannot compare rows of that many columns, or ""."""
        try:
            # Made only to see whether it can be: what a device lacks shows nowhere else.
            self.make(columns)
        except ImportError as error:
            return f"{error.name or 'torch'} is missing"
        except Unavailable as error:
            return str(error)
        return ""


def _cuda(columns: int) -> Engine[Tile]:
    # Here, not above: torch is imported for no other engine, and need not be there for those.
    from raysm.workloads.similarity.engines.cuda.engine import cuda_engine

    return cuda_engine(columns)


CUDA = Accelerator(name="cuda", make=_cuda)
"""The engine of GPUs."""
