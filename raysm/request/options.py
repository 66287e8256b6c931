"""Each field of a request declares what it decides: ``field(default=…, metadata=decides(…))``.

The digest of ``if_done``, the call of a follow-up job, and the refusals of a Processing job are derived from these
declarations. A new option is declared at its field, and nowhere else.
"""

import dataclasses
import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.errors import InvalidRequest
from raysm.request.codec import to_json

KEY = "raysm"
"""Key in a field's metadata."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decides:
    """The effects of one option."""

    result: bool
    """True if a job's result depends on it: then it is part of the digest that ``if_done`` compares."""
    create: tuple[str, ...]
    """Keys of CreateTrainingJob that it becomes, ``ResourceConfig.VolumeSizeInGB``; none where the payload has it."""
    taken_over: bool
    """True if a follow-up job has the same values of these keys."""
    processing_lacks: str | None
    """The feature that a Processing job lacks, so that it refuses the option; None if it has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option of a request."""

    path: str
    """``limits.spot``, ``inputs['train'].mode``."""
    value: Any
    """The user's choice, or the default."""
    default: Any
    """``dataclasses.MISSING`` if a choice is required."""
    decides: Decides
    """The metadata of its field."""

    @property
    def is_asked_for(self) -> bool:
        """True if the user chose something other than the default, and other than False, empty or None."""
        return self.value != self.default and bool(self.value)


def decides(
    *, result: bool, create: str | tuple[str, ...] = (), taken_over: bool = True, processing_lacks: str | None = None
) -> Mapping[str, Decides]:
    """Return the metadata of a field.

    Args:
        result: True where a job's result depends on it.
        create: The key of CreateTrainingJob that it becomes, or several; none where only the payload has it.
        taken_over: True where a follow-up job has the same.
        processing_lacks: What a Processing job does not have, in words: ``"warm pools"``.
    """
    keys = (create,) if isinstance(create, str) else create
    return {KEY: Decides(result=result, create=keys, taken_over=taken_over, processing_lacks=processing_lacks)}


def options_of(value: Any, path: str = "") -> Iterator[Option]:
    """Yield the options of a request or a target: its fields, and those of the values that it is made of.

    Args:
        value: A dataclass, each of whose fields says what it decides, or holds a value (channels: values by name) whose
            fields do.
        path: The beginning of their paths.
    """
    for field in dataclasses.fields(value):
        content, at = getattr(value, field.name), f"{path}{field.name}"
        if KEY in field.metadata:
            yield Option(path=at, value=content, default=_default(field), decides=field.metadata[KEY])
        elif isinstance(content, Mapping):
            for name, item in content.items():
                yield from options_of(item, f"{at}[{name!r}].")
        else:
            yield from options_of(content, f"{at}.")


def decisive(value: Any) -> dict[str, Any]:
    """Return the options of ``value`` on which a job's result depends, JSON values by their paths."""
    return {option.path: decisive_json(option.value) for option in options_of(value) if option.decides.result}


def decisive_json(value: Any) -> Any:
    """Return a value as JSON, without those of its own fields that say that they do not decide the result."""
    content = to_json(value)
    # A workload is one option, but some of its fields (block_rows) do not change the result.
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if KEY in field.metadata and not field.metadata[KEY].result:
                del content[field.name]
    return content


def keys_taken_over(*kinds: type) -> frozenset[str]:
    """Return the keys of CreateTrainingJob that a follow-up job has from the one that it goes on with.

    Args:
        kinds: The classes whose fields become them: of a request, and of the targets.
    """
    every = [fact for kind in kinds for fact in _declared(kind)]
    # Their first part: a follow-up copies whole structures from the answer of Describe.
    return frozenset(key.partition(".")[0] for fact in every if fact.taken_over for key in fact.create)


# Any, because the module of JobRequest imports this one.
def refuse_what_processing_lacks(request: Any) -> None:
    """Refuse a Processing job that asks for what CreateProcessingJob does not have.

    Raises:
        InvalidRequest: What it is, and where it was asked for.
    """
    for option in options_of(request):
        lacks = option.decides.processing_lacks
        # Refused, because an option that is dropped silently would be missed in the job.
        if lacks is not None and option.is_asked_for:
            raise InvalidRequest(
                f"a Processing job has no {lacks} ({option.path}); drop it, or submit with kind='training'"
            )


def _declared(kind: type) -> Iterator[Decides]:
    """Yield what the fields of a class decide, and those of the classes that they hold."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if KEY in field.metadata:
            yield field.metadata[KEY]
        else:
            # A channel's class stands in Mapping[str, Input], every other one by itself.
            inner = typing.get_args(hints[field.name])
            yield from _declared(inner[-1] if inner else hints[field.name])


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def check_names(function: str, names: Collection[str], options: Mapping[str, Any]) -> None:
    """Refuse options that a function does not take.

    Args:
        function: Its name, for the message.
        names: The options it takes.
        options: The options it was given.

    Raises:
        InvalidRequest: The name, and the nearest one that there is.
    """
    for name in options:
        if name not in names:
            import difflib  # only for typing errors: importing it takes longer than the check

            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(names)}"
            raise InvalidRequest(f"{function} takes no option {name!r}{hint}")
