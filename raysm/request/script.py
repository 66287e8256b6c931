"""Scripts of the user's as workloads: what all of them say, and the plain one."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from raysm.errors import InvalidRequest
from raysm.request.parameters import Parameters, of_command_line
from raysm.request.workload import Workload

__all__ = ["Script", "ScriptWorkload"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptWorkload(Workload):
    """What every script says.

    Raises:
        InvalidRequest: The script has no name, or its arguments are one text.
    """

    script: str = field(kw_only=False)
    """The script's path; relative to ``source_dir`` where that is given."""
    args: tuple[str, ...] = ()
    """Its arguments, verbatim: ``sys.argv[1:]``."""
    source_dir: str | None = None
    """A folder that travels whole, but for what is hidden, caches, virtual environments and earlier results; None is
    the script with the modules and packages beside it that it imports."""

    def __post_init__(self) -> None:
        """Check the fields."""
        name = type(self).__name__
        # tuple() would make an argument of each letter.
        if isinstance(self.args, str):
            raise InvalidRequest(f"{name}: args is a list of texts, got {self.args!r}; give args={self.args.split()!r}")
        # What a command line has are texts: 10 is told as "10".
        object.__setattr__(self, "args", tuple(str(item) for item in self.args))
        if not self.script:
            raise InvalidRequest(f"{name}: the path of the script is empty")

    @property
    def entry_script(self) -> "ScriptWorkload":
        """This."""
        return self

    @property
    def title(self) -> str:
        """The script's name without its suffix."""
        return Path(self.script).stem

    @property
    def parameters(self) -> Parameters:
        """Its arguments."""
        return of_command_line(self.args)

    def moved_to(self, script: str) -> Self:
        """Return the same for a source that lies in a payload, where the script has the path ``script``."""
        # No folder any more: in a payload the source is one, however it was found.
        return dataclasses.replace(self, script=script, source_dir=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Script(ScriptWorkload):
    """A Python script, run once, on the head, as ``__main__``, with ``RAY_ADDRESS`` set to the formed cluster.

    It joins the cluster by ``ray.init()``; or, with ``ray_init``, finds itself joined already.

    Raises:
        InvalidRequest: The script has no name.
    """

    runner: ClassVar[str] = "raysm.workloads.runners.script:ScriptRunner"
    label: ClassVar[str] = "the script"
    keeps: ClassVar[str] = "what the script writes into the folder $SM_MODEL_DIR"

    ray_init: bool = False
    """Joins the cluster before the script begins, for one that calls no ``ray.init()``; a call of it would be refused
    by Ray, as any second one."""

    in_state: bool = False
    """Runs the script in $RAYSM_STATE, where a copy of its source lies: what it writes to its working folder, its
    checkpoints for one, is found there by the next run with ``resume`` and after an interruption. In ``args``,
    ``{state}`` is replaced by the state folder and ``{channel_NAME}`` by the folder of an input, also without this."""

    @property
    def is_one_program(self) -> bool:
        """Whether rows of a grid may share a job: it needs neither a joined cluster nor the state folder of the job."""
        return not self.ray_init and not self.in_state
