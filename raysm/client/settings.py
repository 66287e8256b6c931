"""Options from several sources: later layers win, and each value knows its source.

Layers are plain values, the weakest first. Tables are merged key by key, lists are replaced.
"""

import dataclasses
import difflib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from raysm.errors import InvalidRequest
from raysm.request import JobRequest, Local, Target, Workload
from raysm.request.codec import from_json, hints_of
from raysm.request.job import hyperparameter_text

Key: TypeAlias = tuple[str, ...]
"""The path to a value: ``("cluster", "count")``."""

TARGETS: Mapping[str, type[Target]] = {
    target.kind: target for target in sorted(typing.get_args(Target), key=lambda target: target is not Local)
}
"""The targets, each with a table of its own; the first one is the default."""

NEEDED = {"role": "the ARN of the role that the job runs as"}

OWN = {"wheels": tuple[str, ...], "if_done": Literal["run", "skip"], "resume": bool}

GROUPS = ("cluster", "groups")
UNIFORM = (("cluster", "instance_type"), ("cluster", "count"), ("cluster", "alternatives"))
"""A cluster has either groups, or types and a count: a later layer with one of them drops the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """The options of one source."""

    values: Mapping[Key, Any]
    """JSON values, each checked; a list is one value."""
    origin: Callable[[Key], str]
    """Returns the source of a value for people, ``raysm.toml:7``."""


def schema(*, workload: bool) -> dict[str, Any]:
    hints = dict(hints_of(JobRequest))
    if not workload:
        del hints["workload"]
    return {"on": Literal[tuple(TARGETS)], **TARGETS, **hints, **OWN}


def hint_of(key: Key) -> Any:
    hint: Any = schema(workload=True)
    for name in key:
        hint = _hints_in(hint, name).get(name)
    return hint


def check_values(data: Mapping[str, Any], hints: Mapping[str, Any], origin: Callable[[Key], str]) -> dict[Key, Any]:
    """Return the values of nested tables by their keys; an unknown key or a value of another type is refused.

    ``hints`` is the result of ``schema``; ``origin`` returns the source of a value.
    """
    return dict(_leaves(data, hints, (), origin))


def _leaves(item: Any, hint: Any, key: Key, origin: Callable[[Key], str]) -> Iterator[tuple[Key, Any]]:
    item, path = _in_full(item, key), ".".join(key)
    if not _is_table(hint):
        # Only checked: a layer keeps JSON, which can be merged and printed.
        from_json(hint, item, f"{origin(key)}: {path}")
        yield key, item
        return
    if not isinstance(item, Mapping):
        raise InvalidRequest(f"{origin(key)}: {path} is a table of options, got {item!r}")
    for name, inner in item.items():
        names = _hints_in(hint, name)
        if name not in names:
            raise InvalidRequest(f"{origin((*key, name))}: there is no option {_with_nearest((*key, name), names)}")
        yield from _leaves(inner, names[name], (*key, name), origin)


def _in_full(item: Any, key: Key) -> Any:
    """Return the full form of a value that people may write shorter."""
    if isinstance(item, str) and key[:1] == ("inputs",) and len(key) == 2:
        return {"uri": item}
    if key[:1] == ("hyperparameters",) and len(key) == 2:
        return hyperparameter_text(key[1], item)
    return item


def _is_table(hint: Any) -> bool:
    is_open = hint is Workload or typing.get_origin(hint) is Mapping
    return is_open or isinstance(hint, Mapping) or dataclasses.is_dataclass(hint)


def _hints_in(hint: Any, name: str) -> Mapping[str, Any]:
    """Return the types of a table's values by name; if users choose the names, only the type for ``name``."""
    if isinstance(hint, Mapping):
        return hint
    if hint is Workload:  # checked as a whole, once its kind is known
        return {name: Any}
    return {name: typing.get_args(hint)[-1]} if typing.get_origin(hint) is Mapping else hints_of(hint)


def _with_nearest(key: Key, names: Iterable[str]) -> str:
    """Return a key for a message, followed by the most similar name, or by all names."""
    near = difflib.get_close_matches(key[-1], names, n=1)
    hint = f"; did you mean {'.'.join((*key[:-1], near[0]))}?" if near else f"; there are {', '.join(names)}"
    return f"{'.'.join(key)}{hint}"


def nested(values: Mapping[Key, Any]) -> dict[str, Any]:
    """Return the tables that flat values came from."""
    tables: dict[str, Any] = {}
    for key, value in values.items():
        table = tables
        for name in key[:-1]:
            table = table.setdefault(name, {})
        table[key[-1]] = value
    return tables


class Settings:
    """The merged values of all layers, the later ones over the earlier."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.values: dict[Key, Any] = {}
        self._origins: dict[Key, Callable[[Key], str]] = {}
        for layer in layers:
            self._merge(layer)

    def _merge(self, layer: Layer) -> None:
        replaced: list[Key] = []
        # The key alone does not count: a printed request has empty groups beside a type and a count.
        if layer.values.get(GROUPS):
            replaced += UNIFORM
        elif any(key in layer.values for key in UNIFORM):
            # ``head`` names one of the groups.
            replaced += [GROUPS, ("cluster", "head")]
        kind = ("workload", "kind")
        if kind in layer.values and self.values.get(kind) not in (None, layer.values[kind]):
            replaced += [key for key in self.values if key[0] == "workload"]  # another workload, not another option
        for key in replaced:
            self.values.pop(key, None)
        self.values |= layer.values
        self._origins |= dict.fromkeys(layer.values, layer.origin)

    def __contains__(self, key: Key) -> bool:
        """Return True if a layer has a value at ``key``, or below it."""
        return any(chosen[: len(key)] == key for chosen in self.values)

    def origin(self, key: Key) -> str:
        return self._origins[key](key) if key in self.values else "default"

    def table(self, name: str) -> dict[str, Any]:
        values = nested(self.values).get(name)
        return values if isinstance(values, dict) else {}

    @property
    def on(self) -> type[Target]:
        return TARGETS[self.values.get(("on",), next(iter(TARGETS)))]

    def target(self, **defaults: Any) -> Target:
        """Return the target; ``defaults`` are for options that were not chosen: reading a job needs no role."""
        kind = self.on
        fields = dataclasses.fields(kind)
        names = {field.name for field in fields}
        chosen = {name: value for name, value in defaults.items() if name in names} | self.table(kind.kind)
        for field in fields:
            if field.default is dataclasses.MISSING and field.name not in chosen:
                raise InvalidRequest(
                    f"--on {kind.kind} needs --{field.name}, {NEEDED[field.name]}; or write {field.name} under "
                    f"[{kind.kind}] in raysm.toml"
                )
        return from_json(kind, chosen, kind.kind)

    def workload(self) -> Workload:
        chosen = self.table("workload")
        name = chosen.pop("kind", None)
        kind: Callable[..., Workload] = Workload.named(name, f"{self.origin(('workload', 'kind'))}: workload.kind")
        fields = {field.name: field for field in dataclasses.fields(cast(Any, kind))}
        for option in chosen:
            if option not in fields:
                key = ("workload", option)
                raise InvalidRequest(f"{self.origin(key)}: a {name} has no option {_with_nearest(key, fields)}")
        for option, field in fields.items():
            if option not in chosen and field.default is dataclasses.MISSING is field.default_factory:
                raise InvalidRequest(f"the {name} has no {option}; give it in the request's [workload]")
        # Without the codec, because the class has better messages about its values.
        return kind(**{key: tuple(item) if isinstance(item, list) else item for key, item in chosen.items()})

    def options(self) -> dict[str, Any]:
        """Return the options for ``raysm.submit``, without workload and target."""
        hints = {**hints_of(JobRequest), **OWN}
        chosen = nested(self.values)
        if "cluster" in chosen:
            chosen["cluster"] = self._default_count() | chosen["cluster"]
        names = [name for name in chosen if name not in (*TARGETS, "on", "workload")]
        return {name: self._typed(name, hints[name], chosen[name]) for name in names}

    def _typed(self, name: str, hint: Any, item: Any) -> Any:
        try:
            return from_json(hint, item, name)
        except InvalidRequest as error:  # each value is valid by itself, but not together
            origins = dict.fromkeys(self.origin(key) for key in self.values if key[0] == name)
            raise InvalidRequest(f"{error} (from {', '.join(origins)})") from None

    def _default_count(self) -> dict[str, int]:
        """Return the target's default number of instances, if a cluster has other options but no number."""
        chosen = self.table(self.on.kind)
        is_uniform = not any(key in self.values for key in (GROUPS, ("cluster", "count")))
        return {"count": chosen["instances"]} if is_uniform and "instances" in chosen else {}
