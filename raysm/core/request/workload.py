"""Workloads: what a job runs, and which kinds there are.

A kind is one frozen dataclass that derives from ``Workload``. Its fields are the user's options.
Its class attributes and methods declare its requirements and name the runner that executes it. Code
outside of this package never tests which kind a workload is.

A workload also has parameters: small JSON values by name, by which users compare experiments. They
are stored with the results, so texts whose name looks like that of a secret are hidden, and large
values are shown as their type.
"""

import dataclasses
import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

from raysm.core import features
from raysm.errors import InvalidRequest, did_you_mean

if TYPE_CHECKING:
    from raysm.core.request.cluster import Input


Parameters: TypeAlias = Mapping[str, str | int | float | bool | None]
# Only the name counts, because a secret cannot be recognized by its value.
SECRET = re.compile(
    r"passw|passphrase|passcode|pwd|secret|token|credential|(api|access)[_-]?key|private",
    re.IGNORECASE,
)
"""Names of texts that are hidden."""
SECRET_NUMBER = re.compile(
    r"passw|passphrase|passcode|pwd|secret|credential|(api|access|private)[_-]?key|token[_-]?\d*$",
    re.IGNORECASE,
)
"""Names of numbers that are hidden: fewer, because ``max_tokens`` and ``tokenizer_threads`` are
counts."""
HIDDEN = "***"
MAX_CHARACTERS = 200
MAX_PARAMETERS = 100
"""Maximum number for one workload: a configuration of a thousand values is not a row of a table."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def of_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as parameters.

    The members of mappings have dotted names, ``config.lr``.
    """
    pairs = list(_flat("", arguments))
    # Only the first ones, because a table of experiments reads the record of every row.
    return {name: plain(name, value) for name, value in pairs[:MAX_PARAMETERS]}


def arguments_of(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    try:
        signature = inspect.signature(fn)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):  # a built-in without a signature
        return of_arguments(
            {f"argument {number}": value for number, value in enumerate(args, 1)} | kwargs
        )
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        # The caller of def train(**options) knows no "options".
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= arguments.pop(name)
    return of_arguments(arguments)


def of_fields(value: Any, **texts: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults as parameters.

    ``texts`` replace values.
    """
    # Defaults would fill the table with columns that the user did not choose.
    fields = {
        item.name: getattr(value, item.name)
        for item in dataclasses.fields(value)
        if getattr(value, item.name) != item.default
    } | texts
    return of_arguments({name: item for name, item in fields.items() if item is not None})


def of_command_line(args: Iterable[str]) -> dict[str, Any]:
    """Return a script's arguments as parameters.

    ``--lr 0.1``, ``--lr=0.1`` and ``lr=0.1`` are all the parameter ``lr``; others are named
    ``argument 1`` and so on.
    """
    named: dict[str, Any] = {}
    left = list(args)
    place = 0
    while left and len(named) < MAX_PARAMETERS:
        word = left.pop(0)
        name, equals, text = word.partition("=")
        value: str | bool = text
        is_option = word.startswith("-") and not NUMBER.fullmatch(word)
        if is_option and not equals:
            # The next word is the option's value. If that is an option too, this one is a switch.
            value = (
                left.pop(0)
                if left and (not left[0].startswith("-") or NUMBER.fullmatch(left[0]))
                else True
            )
        elif not is_option and not (equals and name.isidentifier()):
            name = f"argument {place + 1}"
            value = word
            place = place + 1
        name = name.lstrip("-") or word
        named[name] = plain(name, typed(value))
    return named


def without_secrets(args: Iterable[str]) -> list[str]:
    """Return a script's arguments with ``***`` for the values that ``of_command_line`` hides."""
    shown: list[str] = []
    option = ""
    for word in args:
        name, equals, text = word.partition("=")
        is_option = word.startswith("-") and not NUMBER.fullmatch(word)
        if option and not is_option:
            shown.append(_hidden(option, word))
            option = ""
        elif equals and (is_option or name.isidentifier()):
            shown.append(f"{name}={_hidden(name, text)}")
            option = ""
        else:
            shown.append(word)
            option = word if is_option else ""
    return shown


def _hidden(name: str, text: str) -> str:
    return HIDDEN if plain(name.lstrip("-"), typed(text)) == HIDDEN else text


def typed(value: Any) -> Any:
    if not hasattr(value, "strip"):
        return value
    # "yes", "no", "on" and "off" stay texts, because users may mean them as words.
    words = {"true": True, "false": False}
    if NUMBER.fullmatch(value):
        number = float(value)
        # Tables and databases hold integers of 64 bits, into which 18 digits fit.
        if re.fullmatch(r"[-+]?\d{1,18}", value):
            return int(value)
        return number if math.isfinite(number) else value
    return words.get(value.lower(), value)


def plain(name: str, value: Any) -> str | int | float | bool | None:
    """Return a value as a table shows it.

    Numbers and short texts are unchanged, other values are their type and shape.

    A text or number that is named like a secret is ``***``.
    """
    match value:
        case None | bool():
            return value
        case int() | float() if SECRET_NUMBER.search(name):
            return HIDDEN
        case int():
            return value
        case float():
            # JSON has no NaN and no infinity.
            return value if math.isfinite(value) else str(value)
        case str():
            return HIDDEN if SECRET.search(name) else _short(value)
        case list() | tuple() | set() | frozenset() if _is_short(value):
            return _short(f"[{', '.join(str(plain(name, item)) for item in value)}]")
    shape = getattr(value, "shape", None)
    return f"<{type(value).__name__}{f' {tuple(shape)}' if isinstance(shape, tuple) else ''}>"


def _is_short(values: Any) -> bool:
    return len(values) <= 8 and all(
        isinstance(item, (str, int, float, bool, type(None))) for item in values
    )


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(f"{name}.", value)
        else:
            yield name, value


IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


class Wrapper(NamedTuple):
    """The class that users submit instead of a workload, because something must be pickled."""

    noun: str
    call: str

    @property
    def name(self) -> str:
        return self.call.partition("(")[0].rpartition(".")[2]


class OwnCosts(NamedTuple):
    """What a workload itself knows about the cost of its job."""

    usd_per_hour: float
    """Costs of all instances together, which the user may have given."""
    budget_usd: float | None
    """The workload ends the job before it costs more; None is no limit."""
    end: str
    """When the job ends earlier, as the end of a sentence."""


class Workload:
    """The base class of all kinds; its attributes are the defaults.

    Your own kind is a ``@dataclass(frozen=True, kw_only=True, slots=True)`` in a module that an
    instance can import before anything is installed there. Its fields are JSON (text, numbers,
    ``tuple[X, ...]``, ``Mapping[str, X]``, dataclasses of them), and the methods of its runner
    contain the heavy imports. The result depends on every field whose metadata is not
    ``decides(result=False)``; ``if_done`` compares these fields.
    """

    # Without this, slots=True would have no effect in subclasses.
    __slots__ = ()

    kind: ClassVar[str]
    """The name in requests and tags: short for raysm's own kinds, else ``module:Class``."""

    runner: ClassVar[str] = ""
    """``module:Class`` of the ``raysm.instance.work.runner.Runner`` that executes it; only the head
    imports it."""
    reader: ClassVar[str] = ""
    """``module:Class`` of the ``raysm.Result`` that reads its result; empty is ``raysm.Result``
    itself."""

    # Words for messages

    label: ClassVar[str] = "the workload"
    """The name in a sentence: ``the similarity``."""
    keeps: ClassVar[str] = "what the workload writes into the folder $SM_MODEL_DIR"
    """The output that a job of this kind keeps, for the message that a job kept nothing."""
    wrapper: ClassVar[Wrapper | None] = None
    """The class that users submit instead."""
    without_remote_debug: ClassVar[str] = "drop --debug (security.remote_debug)"
    """The remedy if an account forbids remote debugging."""

    # Requirements

    channels: ClassVar[tuple[str, ...]] = ()
    """Required channels."""
    input_check: ClassVar[str | None] = None
    """``module:function`` that checks inputs on this machine before a job is sent; the check is
    skipped if its imports are not installed."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Modules that an instance imports in addition to Ray; pip installs those that the image
    lacks."""
    extra: ClassVar[str | None] = None
    """raysm's extra with the requirements, for the message about a missing package."""

    # Ray's options

    ray_variables: ClassVar[Mapping[str, str]] = {}
    """Environment variables of every Ray process."""
    preloads: ClassVar[tuple[str, ...]] = ()
    """Modules that Ray's workers import before their first task."""
    wants_all_cpus_at_once: ClassVar[bool] = False
    """True if tasks use every CPU as soon as the cluster is formed. Each instance then starts Ray's
    workers when it joins; otherwise only the head does, when the driver starts."""
    log_monitor: ClassVar[bool] = True
    """True if Ray sends the driver the output of tasks; without it Ray has one process fewer."""
    prepares_ahead: ClassVar[bool] = False
    """True starts the driver, and calls the runner's ``prepare``, while the cluster still forms;
    only for kinds whose ``prepare`` runs no user code."""

    # End and result

    is_named_once: ClassVar[bool] = False
    """True if no two running jobs of this kind have the same short name."""
    keeps_state: ClassVar[bool] = True
    """True if state outlives the job among the checkpoints: files that user code writes to
    $RAYSM_STATE, or finished parts. False means that no folder is synchronised, and that a job
    cannot be resumed."""
    takes_calls: ClassVar[bool] = False
    """True if clients connect and call functions: the rows below its job in the table of
    experiments are calls."""
    identity: ClassVar[tuple[str, ...]] = ()
    """Options that a job must share with an earlier one to continue its state."""
    returns_value: ClassVar[bool] = False
    """True if the result is a pickled value or exception; False if it is a folder of files."""
    marks_end: ClassVar[bool] = False
    """True if user code runs in the driver, and the runner calls ``mark_end`` last. A driver that
    ends without the mark was left by user code with ``os._exit(0)``, and the job fails."""
    fails_on_unmet_requests: ClassVar[bool] = True
    """True if the job fails when Ray waits too long for resources that no instance has."""
    reports_metrics: ClassVar[bool] = False
    """True if user code reports or prints metrics of the job, so that ``stop_on_nan`` may name
    one."""
    names_waiting_requests: ClassVar[bool] = False
    """True if the log names Ray requests that wait for long for what others hold: for kinds whose
    user code asks."""
    relays_output: ClassVar[bool] = False
    """True if the log already contains the output of the processes, so that a traceback is not
    repeated."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "kind" not in vars(cls):
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"

    @property
    def entry_script(self) -> "ScriptWorkload | None":
        """The workload itself if it runs a script of the user, whose source is sent; else None."""
        return None

    @property
    def pickled_by(self) -> str | None:
        """Version of the Python that pickled the user's code, ``3.11``, or None.

        Other versions may not read it. None means that there is no pickle.
        """
        return None

    @property
    def title(self) -> str:
        """The default for a job's name."""
        return self.kind.rpartition(":")[2]

    @property
    def parameters(self) -> Parameters:
        """The options that the user chose, by which experiments are compared.

        They must not contain secrets.
        """
        return of_fields(self)

    @property
    def own_costs(self) -> OwnCosts | None:
        """What the workload itself knows of its job's cost; None leaves it to tables of prices."""
        return None

    @property
    def code_digest(self) -> str:
        """SHA-256 of user code that does not travel as a file; empty if there is none."""
        return ""

    def check_inputs(self, inputs: "Mapping[str, Input]", instances: int) -> None:
        """Check that the workload can read the inputs as the instances share them.

        Most kinds accept any.

        Args:
            inputs: The inputs by channel.
            instances: The instances of the cluster.

        Raises:
            InvalidRequest: The message names the channel, the problem and the remedy.
        """

    def check_types(self, instance_types: Sequence[str]) -> None:
        """Check that instances of each of these types can run the workload.

        Raises:
            InvalidRequest: The message names the type, the problem and the remedy.
        """

    def workers_ahead(self, gpus: int) -> int | None:
        """Return how many of Ray's workers an instance starts before the first task.

        None is one for each CPU.
        """
        return None

    @property
    def leaves_working_folder(self) -> bool:
        """Whether a resumed job lacks what the earlier one wrote into its working folder."""
        return False

    @property
    def has_state_by_rank(self) -> bool:
        """Whether each instance's state is what its own ranks saved, and not that of rank 0."""
        return False

    @property
    def small_input_bytes(self) -> int:
        """The size up to which inputs count as small.

        Then the driver computes alone, and no worker starts ahead.
        """
        return 0

    @classmethod
    def named(cls, kind: object, where: str = "kind") -> "type[Workload]":
        """Return the class of a kind: a feature's or ``module:Class``; ``where`` begins errors."""
        # JSON from another machine may contain a number or a list here.
        name = str(kind)
        path = name if IMPORT_PATH.fullmatch(name) else features.path_of("kinds", name)
        if path is not None:
            return _imported(path, where)
        shown = repr(kind) if len(repr(kind)) <= 80 else repr(kind)[:77] + "..."
        kinds = ", ".join(map(repr, features.all_paths("kinds")))
        raise InvalidRequest(
            f"{where}: expected one of {kinds}, or module:Class of your own kind, got {shown}"
        )


class ScriptWorkload(Workload):
    """A base of kinds that run a user's script or a command and declare its four fields."""

    __slots__ = ()

    script: str
    args: tuple[str, ...]
    source_dir: str | None
    command: bool

    @property
    def entry_script(self) -> "ScriptWorkload":
        return self

    @property
    def title(self) -> str:
        return Path(self.script).stem

    def moved_to(self, script: str) -> Self:
        """Return the workload with the script at ``script`` inside the payload's source."""
        return dataclasses.replace(self, script=script, source_dir=None)  # type: ignore[type-var]

    def check_script(self, name: str) -> None:
        """Check the fields of the kind ``name``, and make arguments texts: 10 becomes "10"."""
        # tuple() would split a text into letters.
        if isinstance(self.args, str):
            raise InvalidRequest(
                f"{name}: args is a list of texts, got {self.args!r}; "
                f"give args={self.args.split()!r}"
            )
        for item in self.args:
            # The script would read "False" as a text, which is true.
            if item is None or isinstance(item, bool | list | tuple | set | dict):
                raise InvalidRequest(
                    f"{name}: args has {item!r}; "
                    "give the text that the script reads, or leave it out"
                )
        object.__setattr__(self, "args", tuple(str(item) for item in self.args))
        if not self.script:
            raise InvalidRequest(f"{name}: the path of the script is empty")

    def check_inputs(self, inputs: "Mapping[str, Input]", instances: int) -> None:
        # Double braces are literal in a grid's arguments.
        for name in re.findall(r"(?<!{){channel_([^{}]*)}(?!})", "\n".join(self.args)):
            if name not in inputs:
                raise InvalidRequest(
                    f"the arguments have {{channel_{name}}}, and the job has no input {name!r}"
                    f"{did_you_mean(name, inputs)}; it has {', '.join(sorted(inputs)) or 'none'}"
                )


def built_in_kind(kind: str) -> type[Workload] | None:
    """Return the class of a feature's kind; import nothing else: names may be untrusted."""
    return None if features.path_of("kinds", kind) is None else Workload.named(kind)


def takes_calls(kind: str | None) -> bool:
    """Return ``Workload.takes_calls`` of a feature's kind; False if no installed feature has it."""
    found = built_in_kind(kind or "")
    return found is not None and found.takes_calls


def require_workload(value: object) -> Workload:
    """Return ``value`` if it can be submitted as it is."""
    if isinstance(value, Workload):
        if value.wrapper is not None:
            raise InvalidRequest(_wrap(value.wrapper, value))
        check_kind(type(value))
        return value
    kinds = [Workload.named(kind) for kind in features.all_paths("kinds")]
    if callable(value):
        for kind in kinds:
            if kind.wrapper is not None:
                raise InvalidRequest(_wrap(kind.wrapper, value))
    names = [kind.wrapper.name if kind.wrapper else kind.__name__ for kind in kinds]
    raise InvalidRequest(
        f"the workload must be {', '.join(names)} or a Workload of your own, got {value!r}"
    )


def _wrap(wrapper: Wrapper, value: object) -> str:
    return f"wrap the {wrapper.noun}: raysm.submit({wrapper.call}), got {value!r}"


def check_kind(kind: type[Workload]) -> None:
    if not IMPORT_PATH.fullmatch(kind.kind) and features.path_of("kinds", kind.kind) is None:
        raise InvalidRequest(
            f"the kind of workload {kind.kind!r} is defined inside a function or class, "
            "where no instance can import it: move it to the top of a module"
        )
    if kind.__module__ == "__main__":
        raise InvalidRequest(
            f"the kind of workload {kind.__name__} is defined in the program itself (__main__), "
            "which no instance can import: move it into a module beside it"
        )
    if not dataclasses.is_dataclass(kind):
        raise InvalidRequest(
            f"the kind of workload {kind.__name__} is not a dataclass, so it cannot be sent: "
            "decorate it with @dataclass(frozen=True, kw_only=True, slots=True)"
        )
    if not IMPORT_PATH.fullmatch(kind.runner):
        raise InvalidRequest(
            f"the kind of workload {kind.__name__} names no runner; "
            f"give runner = 'module:Class', got {kind.runner!r}"
        )


def _imported(path: str, where: str) -> type[Workload]:
    module, _, name = path.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)
    except Exception as error:  # the module may be the user's, which may raise anything
        raise InvalidRequest(
            f"{where}: the kind of workload {path!r} cannot be imported here: "
            f"{type(error).__name__}: {error}"
        ) from error
    # The name may come from untrusted JSON, and name anything that Python can import.
    if not (
        isinstance(kind, type) and issubclass(kind, Workload) and dataclasses.is_dataclass(kind)
    ):
        raise InvalidRequest(
            f"{where}: {path!r} is not a kind of workload: a dataclass derived from Workload"
        )
    return kind
