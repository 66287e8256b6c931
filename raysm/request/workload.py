"""Workloads: what a job runs, and which kinds there are.

A kind is one frozen dataclass that derives from ``Workload``. Its fields are what the user asks for. Its class
attributes and methods tell the rest of raysm what it needs, and name the runner that carries it out. Code outside of
this package never tests which kind a workload is.

A workload also tells its parameters: small JSON values by name, by which experiments are compared. They are stored
beside the results, so texts with the name of a secret are hidden, and large values are shown as their type.
"""

import dataclasses
import importlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from raysm.errors import InvalidRequest

if TYPE_CHECKING:
    from raysm.request.cluster import Input


Parameters: TypeAlias = Mapping[str, str | int | float | bool | None]
"""Values by name."""

# By the name alone: what a value looks like tells nothing certain of it.
SECRET = re.compile(r"passw|secret|token|credential|api_?key|private", re.IGNORECASE)
"""Names of texts that are not told; of numbers (``max_tokens``) they are."""

MOST_CHARACTERS = 200
"""Maximum length of one text."""

MOST_PARAMETERS = 100
"""Maximum number for one workload: a configuration of a thousand values is not a row of a table."""

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def of_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as parameters: of a mapping its members, ``config.lr``; of others their kind."""
    # Nested ones by dots, as the columns of a table have them.
    pairs = list(_flat("", arguments))
    # The first ones, in the order of the call: a record is read for every row of a table.
    return {name: plain(name, value) for name, value in pairs[:MOST_PARAMETERS]}


def of_fields(value: Any, **texts: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults as parameters.

    Args:
        value: A workload.
        texts: By their names, fields whose own value would be told by its kind alone.
    """
    # Defaults are left out: they would fill the table with columns that the user did not choose.
    fields = {
        item.name: getattr(value, item.name)
        for item in dataclasses.fields(value)
        if getattr(value, item.name) != item.default
    } | texts
    return of_arguments({name: item for name, item in fields.items() if item is not None})


def of_command_line(args: Iterable[str]) -> dict[str, Any]:
    """Return a script's arguments as parameters: ``--lr 0.1``, ``--lr=0.1`` and ``lr=0.1`` alike; the others by place.

    Args:
        args: ``sys.argv[1:]``.
    """
    named: dict[str, Any] = {}
    left, place = list(args), 0
    while left and len(named) < MOST_PARAMETERS:
        word = left.pop(0)
        name, equals, text = word.partition("=")
        value: str | bool = text
        is_option = word.startswith("-") and not NUMBER.fullmatch(word)
        if is_option and not equals:
            # The next word is the option's value, unless it is an option too: then this one is a switch.
            value = left.pop(0) if left and (not left[0].startswith("-") or NUMBER.fullmatch(left[0])) else True
        elif not is_option and not (equals and name.isidentifier()):
            name, value, place = f"argument {place + 1}", word, place + 1
        name = name.lstrip("-") or word
        named[name] = plain(name, typed(value))
    return named


def typed(value: Any) -> Any:
    """Return the number or truth value that a text says; every other value as it is."""
    if not hasattr(value, "strip"):
        return value
    # Not yes and no, nor on and off: as words they may well be meant.
    words = {"true": True, "false": False}
    if NUMBER.fullmatch(value):
        number = float(value)
        # 18 digits fit into 64 bits, which is what tables and databases hold.
        is_whole = re.fullmatch(r"[-+]?\d{1,18}", value)
        return int(value) if is_whole else number if math.isfinite(number) else value
    return words.get(value.lower(), value)


def plain(name: str, value: Any) -> str | int | float | bool | None:
    """Return a value as a table shows it: numbers and short texts as they are, of all else what it is."""
    match value:
        case None | bool() | int():
            return value
        case float():
            # JSON has no NaN and no infinity.
            return value if math.isfinite(value) else str(value)
        case str():
            return "***" if SECRET.search(name) else _short(value)
        case list() | tuple() | set() | frozenset() if _is_short(value):
            return _short(f"[{', '.join(str(plain(name, item)) for item in value)}]")
    shape = getattr(value, "shape", None)
    return f"<{type(value).__name__}{f' {tuple(shape)}' if isinstance(shape, tuple) else ''}>"


def _is_short(values: Any) -> bool:
    return len(values) <= 8 and all(isinstance(item, (str, int, float, bool, type(None))) for item in values)


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(f"{name}.", value)
        else:
            yield name, value


KINDS: Mapping[str, str] = {
    "script": "raysm.request.programs:Script",
    "function": "raysm.request.programs:PickledFunction",
    "similarity": "raysm.request.similarity:Similarity",
    "torch_script": "raysm.request.programs:TorchScript",
    "data_parallel": "raysm.request.programs:TrainLoop",
    "session": "raysm.request.session:SessionWorkload",
    "function_sweep": "raysm.request.sweep:FunctionSweep",
    "script_sweep": "raysm.request.sweep:ScriptSweep",
    "batch": "raysm.request.batch:BatchInference",
}
"""raysm's own kinds: to add one is to add its line. All others go by where they are imported from."""

NAMES: Mapping[str, str] = {path: name for name, path in KINDS.items()}

IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""``module:Class``."""


class Wrapper(NamedTuple):
    """The class that users submit instead of a workload, because something must be pickled."""

    noun: str
    """The thing that is wrapped: ``function``."""
    call: str
    """The call: ``raysm.Function(fn, *args, **kwargs)``."""

    @property
    def name(self) -> str:
        """``Function``."""
        return self.call.partition("(")[0].rpartition(".")[2]


class EntryScript(Protocol):
    """A workload that is a script of the user's; ``ScriptWorkload`` describes the fields."""

    # Properties: a frozen dataclass's fields can only be read.
    @property
    def script(self) -> str:
        """The script's path; relative to ``source_dir`` where that is given."""

    @property
    def args(self) -> tuple[str, ...]:
        """Its arguments."""

    @property
    def source_dir(self) -> str | None:
        """A folder that travels whole."""

    def moved_to(self, script: str) -> "Workload":
        """Return the same for a source that lies in a payload, where the script has the path ``script``."""


class Workload:
    """The base of all kinds, with the facts that hold unless a kind knows better.

    A kind of one's own is a ``@dataclass(frozen=True, kw_only=True, slots=True)`` in a module that an instance can
    import before anything is installed there: its fields are JSON (text, numbers, ``tuple[X, ...]``, ``Mapping[str,
    X]``, dataclasses of them), and heavy imports stand inside the methods of its runner. A result depends on every
    field whose metadata does not say ``decides(result=False)``: ``if_done`` compares them.
    """

    # Without this, slots=True of a kind would have no effect.
    __slots__ = ()

    kind: ClassVar[str]
    """Its name in a request, in tags and in answers of a fake: of raysm's own the short one, else ``module:Class``."""

    runner: ClassVar[str] = ""
    """``module:Class`` of the ``raysm.workloads.runner.Runner`` that does it; imported on the head alone."""
    reader: ClassVar[str] = ""
    """``module:Class`` of the ``raysm.Result`` that reads its result; empty is ``raysm.Result`` itself."""

    # For people

    label: ClassVar[str] = "the workload"
    """Its name in a sentence: ``the similarity``."""
    keeps: ClassVar[str] = "what the workload writes into the folder $SM_MODEL_DIR"
    """The output that a job of this kind keeps, for the message that it kept nothing."""
    wrapper: ClassVar[Wrapper | None] = None
    """The class that users submit instead."""
    without_remote_debug: ClassVar[str] = "drop --debug (security.remote_debug)"
    """The remedy if an account forbids remote debugging."""

    # Requirements

    channels: ClassVar[tuple[str, ...]] = ()
    """Required channels."""
    input_check: ClassVar[str | None] = None
    """``module:function`` that looks at the inputs of this machine before a job is sent; imported only where it is
    used, and left out where its packages are not."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Modules that an instance imports for it beside Ray; pip installs those that an image lacks."""
    extra: ClassVar[str | None] = None
    """raysm's extra that has what it needs, for the message about a package that is not there."""

    # Ray's options

    ray_variables: ClassVar[Mapping[str, str]] = {}
    """Environment variables of every Ray process."""
    preloads: ClassVar[tuple[str, ...]] = ()
    """Modules that Ray's workers import before they have their first task."""
    wants_all_cpus_at_once: ClassVar[bool] = False
    """Its tasks take every CPU as soon as the cluster is formed. So workers are started on each instance as it joins,
    not on the head alone once the driver is there."""
    log_monitor: ClassVar[bool] = True
    """True if Ray sends the driver the output of tasks; without it Ray has one process fewer."""
    prepares_ahead: ClassVar[bool] = False
    """Whether the driver is started while the cluster still forms, and its runner's ``prepare`` is called: only where
    none of the user's code runs there."""

    # How it ends

    keeps_state: ClassVar[bool] = True
    """Whether anything of it outlives the job, among the checkpoints: user code that writes to $RAYSM_STATE, or what is
    finished of it. False: the service is not asked to synchronise a folder, and there is nothing to resume."""
    returns_value: ClassVar[bool] = False
    """True: the job's result is a value, which travels pickled, as does an exception; False: a folder of files."""
    fails_on_unmet_requests: ClassVar[bool] = True
    """True if the job fails when Ray waits too long for resources that no instance has."""
    relays_output: ClassVar[bool] = False
    """True if the log already has the output of its processes, so that a traceback is not repeated."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        path = f"{cls.__module__}:{cls.__qualname__}"
        # Each time: dataclass(slots=True) makes the class anew, and so comes here twice.
        cls.kind = NAMES.get(path, path)

    @property
    def entry_script(self) -> "EntryScript | None":
        """The workload itself, where it is a script of the user's: its source travels, and it is told to ``SM_*``."""
        return None

    @property
    def pickled_by(self) -> str | None:
        """Version of the Python, ``3.11``, that pickled what travels with it; None where nothing is pickled.

        Another one cannot be trusted to read it.
        """
        return None

    @property
    def title(self) -> str:
        """The default for a job's name."""
        return self.kind.rpartition(":")[2]

    @property
    def parameters(self) -> Parameters:
        """The options that the user chose, by which experiments are compared. None may be secret."""
        return of_fields(self)

    @property
    def code_digest(self) -> str:
        """SHA-256 of the user's code that it is made of, where that travels as no file; empty where it has none."""
        return ""

    def check_inputs(self, inputs: "Mapping[str, Input]", instances: int) -> None:
        """Refuse inputs that it cannot read as they are shared out; most kinds take any.

        Args:
            inputs: The inputs by channel.
            instances: The instances of the cluster.

        Raises:
            InvalidRequest: What is wrong with which channel, and what to do.
        """

    def workers_ahead(self, gpus: int) -> int | None:
        """Return how many of Ray's workers an instance starts before the first task; None is one for each CPU.

        Args:
            gpus: The GPUs of the instance.
        """
        return None

    @classmethod
    def named(cls, kind: object, where: str = "kind") -> "type[Workload]":
        """Return the class of a kind.

        Args:
            kind: The kind in a request: one of ``KINDS``, or ``module:Class``.
            where: The path that messages begin with.

        Raises:
            InvalidRequest: There is no such kind, or it cannot be imported here.
        """
        # JSON from elsewhere may have a number or a list here.
        name = str(kind)
        if name in KINDS or IMPORT_PATH.fullmatch(name):
            return _imported(KINDS.get(name, name), where)
        shown = repr(kind) if len(repr(kind)) <= 80 else repr(kind)[:77] + "..."
        raise InvalidRequest(
            f"{where}: expected one of {', '.join(map(repr, KINDS))}, or module:Class of a kind of your own, "
            f"got {shown}"
        )


def built_in_kind(kind: str) -> type[Workload] | None:
    """Return the class of a kind of raysm's own; None of all others.

    For names that others wrote, a job's tags for one: nothing that they name is imported.
    """
    return Workload.named(kind) if kind in KINDS else None


def require_workload(value: object) -> Workload:
    """Return ``value`` if it can be submitted as it is.

    Raises:
        InvalidRequest: It is no workload, or one that is made by a wrapper.
    """
    if isinstance(value, Workload):
        if value.wrapper is not None:
            raise InvalidRequest(_wrap(value.wrapper, value))
        check_kind(type(value))
        return value
    kinds = [Workload.named(kind) for kind in KINDS]
    if callable(value):
        wrapper = next(kind.wrapper for kind in kinds if kind.wrapper is not None)
        raise InvalidRequest(_wrap(wrapper, value))
    names = [kind.wrapper.name if kind.wrapper else kind.__name__ for kind in kinds]
    raise InvalidRequest(f"the workload must be {', '.join(names)} or a Workload of your own, got {value!r}")


def _wrap(wrapper: Wrapper, value: object) -> str:
    return f"wrap the {wrapper.noun}: raysm.submit({wrapper.call}), got {value!r}"


def check_kind(kind: type[Workload]) -> None:
    """Refuse a kind that no instance could read or run, while nothing is spent.

    Raises:
        InvalidRequest: What is wrong with its class, and what to do.
    """
    if not IMPORT_PATH.fullmatch(kind.kind) and kind.kind not in KINDS:
        raise InvalidRequest(
            f"the kind of workload {kind.kind!r} is defined inside a function or class, where no instance can import "
            "it: move it to the top of a module"
        )
    if kind.__module__ == "__main__":
        raise InvalidRequest(
            f"the kind of workload {kind.__name__} is defined in the program itself (__main__), which no instance can "
            "import: move it into a module beside it"
        )
    if not dataclasses.is_dataclass(kind):
        raise InvalidRequest(
            f"the kind of workload {kind.__name__} is not a dataclass, so it cannot be sent: decorate it with "
            "@dataclass(frozen=True, kw_only=True, slots=True)"
        )
    if not IMPORT_PATH.fullmatch(kind.runner):
        raise InvalidRequest(
            f"the kind of workload {kind.__name__} names no runner: give it runner = 'module:Class', "
            f"got {kind.runner!r}"
        )


def _imported(path: str, where: str) -> type[Workload]:
    module, _, name = path.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)
    except Exception as error:  # it is the user's own module, which may raise anything
        raise InvalidRequest(
            f"{where}: the kind of workload {path!r} cannot be imported here: {type(error).__name__}: {error}"
        ) from error
    # The name may come from JSON that others wrote, and lead to anything that Python can import.
    if not (isinstance(kind, type) and issubclass(kind, Workload) and dataclasses.is_dataclass(kind)):
        raise InvalidRequest(f"{where}: {path!r} is not a kind of workload: a dataclass derived from Workload")
    return kind
