"""Parse the space of a sweep: ranges, texts of the command line, or JSON."""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, get_args

from raysm.errors import InvalidRequest
from raysm.request.codec import from_json
from raysm.request.space import Choice, Parameter

KINDS: Mapping[str, type[Any]] = {kind.kind: kind for kind in get_args(Parameter)}


def space_of(written: object) -> dict[str, Parameter]:
    """Return a space as values, from values, texts of a command line, or JSON.

    Raises:
        InvalidRequest: It is empty, no mapping, or one of its ranges cannot be.
    """
    if not isinstance(written, Mapping) or not written:
        raise InvalidRequest(
            f"a sweep needs a space, {{'lr': raysm.loguniform(1e-4, 1e-1)}}, or a function of an Optuna trial, "
            f"got {written!r}"
        )
    for name in written:
        # They become keyword arguments, and --NAME of a script.
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidRequest(f"space: a parameter's name is one that Python allows, lr or batch_size, got {name!r}")
    return {name: _named(name, item) for name, item in written.items()}


def _named(name: str, item: object) -> Parameter:
    if isinstance(item, tuple(KINDS.values())):
        return item  # type: ignore[return-value]  # KINDS has exactly those
    try:
        if isinstance(item, str):
            return _from_text(item)
        if isinstance(item, Mapping):
            return _from_object(item)
    except InvalidRequest as error:
        raise InvalidRequest(f"space: {name}: {error}") from None
    remedy = f"choice({item!r})" if isinstance(item, (list, tuple)) else f"choice([{item!r}])"
    raise InvalidRequest(f"space: {name} is {item!r}, which is not a range; for fixed values use raysm.{remedy}")


def _from_object(item: Mapping[str, Any]) -> Parameter:
    kind = _kind(item.get("kind"))
    parameter: Parameter = from_json(kind, dict(item), kind.kind)
    return parameter


def _from_text(text: str) -> Parameter:
    """Return what ``loguniform:1e-4:1e-1`` or ``choice:32,64`` means."""
    name, *parts = text.split(":")
    kind = _kind(name)
    if kind is Choice:
        # With the colons, which a path or an address among the choices has.
        return Choice(tuple(_value(part) for part in ":".join(parts).split(",") if part))
    # As the class has them, so that a new kind needs no line here.
    bounds = [field for field in ("low", "high", "step") if field in kind.__dataclass_fields__]
    if len(parts) != len(bounds):
        raise InvalidRequest(f"write {name}:{':'.join(bounds).upper()}, got {text!r}")
    numbers = [_value(part) for part in parts]
    parameter: Parameter = kind(*numbers)
    return parameter


def _kind(name: object) -> type[Any]:
    if name in KINDS:
        return KINDS[str(name)]
    near = difflib.get_close_matches(str(name), KINDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(KINDS)}"
    raise InvalidRequest(f"there is no range {name!r}; {hint}")


def _value(text: str) -> Any:
    """Return what a text of a command line stands for: a number or a word of Python where it is one."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    # int first: float reads every integer too, and 32 is not to become 32.0.
    readers: tuple[Callable[[str], Any], ...] = (int, float)
    for read in readers:
        try:
            return read(text)
        except ValueError:
            continue
    return text
