"""Each field of a request declares what it affects.

It does so by ``optional(30, result=False, create=…)``, or ``decides(…)``.

Three things are derived from these declarations: the digest that ``if_done`` compares, the keys
that a follow-up job copies, and the options that a Processing job refuses. A new option is declared
at its field, and nowhere else.
"""

import dataclasses
import math
import os
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest, did_you_mean

KEY = "raysm"


def check_counts(what: str, least: int, *, or_none: bool = False, **values: object) -> None:
    """Check that values, by name, are whole numbers of at least ``least``.

    With ``or_none``, they may be None.

    Raises:
        InvalidRequest: One of them is not; the message begins with ``what``.
    """
    for name, value in values.items():
        # Not isinstance, because True is an int.
        if not (or_none and value is None) and (type(value) is not int or value < least):
            raise InvalidRequest(
                f"{what}: {name} must be a whole number of at least {least}, got {value!r}"
            )


def check_list(what: str, name: str, value: object) -> tuple[Any, ...]:
    """Return the items of a list, as a tuple; a single text is no list of its letters.

    Raises:
        InvalidRequest: The value is a text, a path, or no list; the message begins with ``what``.
    """
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, os.PathLike, Mapping)):
        return tuple(value)
    where = f"{what}: {name}" if what else name
    if value is None:
        raise InvalidRequest(f"{where} must be a list, got None; leave it out, or write {name}=[]")
    one = os.fspath(value) if isinstance(value, os.PathLike) else value
    raise InvalidRequest(f"{where} must be a list, got {value!r}; write {name}=[{one!r}]")


def check_numbers(what: str, **values: object) -> None:
    for name, value in values.items():
        if type(value) not in (int, float):
            raise InvalidRequest(f"{what}: {name} must be a number, got {value!r}")


def check_amounts(what: str, **values: object) -> None:
    """Check that amounts in USD, by their names, are numbers above 0, or None.

    Raises:
        InvalidRequest: One of them is not; the message begins with ``what``.
    """
    for name, value in values.items():
        is_amount = type(value) in (int, float) and 0 < value < math.inf  # type: ignore[operator]
        if value is not None and not is_amount:
            raise InvalidRequest(f"{what}: {name} must be an amount above 0 USD, got {value!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Decides:
    """The effects of one option."""

    result: bool
    """True if the job's result depends on the option; it is then part of the digest that
    ``if_done`` compares."""
    create: tuple[str, ...]
    """Keys of CreateTrainingJob that the option sets, ``ResourceConfig.VolumeSizeInGB``; empty if
    only the payload contains it."""
    taken_over: bool
    processing_lacks: str | None
    """The feature that CreateProcessingJob lacks, so that a Processing job refuses the option; None
    if it has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option of a request."""

    path: str
    value: Any
    default: Any
    decides: Decides

    @property
    def is_asked_for(self) -> bool:
        """True if the user chose something other than the default, and not False, empty or None."""
        return self.value != self.default and bool(self.value)


def decides(
    *,
    result: bool,
    create: str | tuple[str, ...] = (),
    taken_over: bool = True,
    processing_lacks: str | None = None,
) -> Mapping[str, Decides]:
    """Return the metadata of a field; its arguments are the fields of ``Decides``."""
    keys = (create,) if isinstance(create, str) else create
    return {
        KEY: Decides(
            result=result, create=keys, taken_over=taken_over, processing_lacks=processing_lacks
        )
    }


def optional(default: Any, **effects: Any) -> Any:
    """Return a field with a default; its other arguments are those of ``decides``."""
    return dataclasses.field(default=default, metadata=decides(**effects))


def options_of(value: Any, path: str = "") -> Iterator[Option]:
    """Yield the options of a request or a target: its fields, and those of the dataclasses in it.

    Each field either has the metadata of ``decides``, or contains a dataclass or a mapping of
    dataclasses whose fields have it.
    """
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        at = f"{path}{field.name}"
        if KEY in field.metadata:
            yield Option(
                path=at, value=content, default=_default(field), decides=field.metadata[KEY]
            )
        elif isinstance(content, Mapping):
            for name, item in content.items():
                yield from options_of(item, f"{at}[{name!r}].")
        else:
            yield from options_of(content, f"{at}.")


def decisive(value: Any) -> dict[str, Any]:
    """Return the options of ``value`` on which a job's result depends, as JSON values by path."""
    return {
        option.path: decisive_json(option.value)
        for option in options_of(value)
        if option.decides.result
    }


def decisive_json(value: Any) -> Any:
    """Return a value as JSON, without the fields that declare ``result=False``."""
    content = to_json(value)
    # A workload is one option, but some of its fields (block_rows) do not change the result.
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if KEY in field.metadata and not field.metadata[KEY].result:
                del content[field.name]
    return content


def keys_taken_over(*kinds: type) -> frozenset[str]:
    """Return the keys of CreateTrainingJob that a follow-up job copies.

    They are those of the options of the classes ``kinds``.
    """
    every = [effects for kind in kinds for effects in _declared(kind)]
    # A follow-up copies whole structures from the answer of Describe, so only the first part of a
    # key counts.
    return frozenset(
        key.partition(".")[0] for effects in every if effects.taken_over for key in effects.create
    )


# Any, because the module of JobRequest imports this one.
def refuse_what_processing_lacks(request: Any) -> None:
    for option in options_of(request):
        lacks = option.decides.processing_lacks
        if lacks is not None and option.is_asked_for:
            raise InvalidRequest(
                f"a Processing job has no {lacks} ({option.path}); "
                "drop it, or submit with kind='training'"
            )


def _declared(kind: type) -> Iterator[Decides]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if KEY in field.metadata:
            yield field.metadata[KEY]
        else:
            # The type of inputs is Mapping[str, Input]; every other type is a dataclass itself.
            inner = typing.get_args(hints[field.name])
            yield from _declared(inner[-1] if inner else hints[field.name])


def _default(field: "dataclasses.Field[Any]") -> Any:
    return (
        field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    )


def check_names(
    function: str, names: Collection[str], options: Mapping[str, Any], what: str = "option"
) -> None:
    for name in options:
        if name not in names:
            hint = did_you_mean(name, names) or f"; it takes {', '.join(names)}"
            raise InvalidRequest(f"{function} takes no {what} {name!r}{hint}")
