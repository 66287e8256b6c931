"""Texts with columns in braces: ``--lr {lr}``.

What flows in are the values of a grid's template, what flows out are those of one row. A name alone may stand in the
braces, with a format behind a colon: attributes, as ``str.format`` has them, would let a file of rows reach into the
program.
"""

import dataclasses
import difflib
import functools
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from raysm.errors import InvalidRequest
from raysm.grid.task import Value

__all__ = ["check_names", "fill", "names_in"]


def names_in(template: Any) -> frozenset[str]:
    """Return the columns that a template takes.

    Args:
        template: A text, or tuples, lists, mappings and dataclasses of such; everything else has none.

    Raises:
        InvalidRequest: Braces hold something else than a name.
    """
    return frozenset(name for text in _texts(template) for _, name, _ in _parts(text) if name is not None)


def check_names(template: Any, names: Iterable[str], origin: str) -> None:
    """Refuse a template that takes a column that there is not.

    Args:
        template: As for ``names_in``.
        names: Those that there are.
        origin: What a message calls the source of the rows.

    Raises:
        InvalidRequest: It names the column that comes nearest.
    """
    columns = sorted(set(names))
    for name in sorted(names_in(template) - set(columns)):
        # Names of two letters, lr and rl, are half alike at most.
        near = difflib.get_close_matches(name, columns, n=1, cutoff=0.5)
        hint = f"did you mean {{{near[0]}}}?" if near else f"there are {', '.join(columns) or 'none'}"
        raise InvalidRequest(f"{{{name}}}: {origin} has no column {name!r}; {hint} (write a literal brace twice)")


def fill(template: Any, values: Mapping[str, Value], where: str) -> Any:
    """Return a template with the values of one row in it; what has no braces comes back as it is, the same object.

    Args:
        template: As for ``names_in``.
        values: By column.
        where: What a message calls the row.

    Raises:
        InvalidRequest: A value is not there in this row, or does not take its format.
    """
    return _mapped(template, lambda text: _filled(text, values, where) if "{" in text or "}" in text else text)


def _mapped(template: Any, change: Callable[[str], str]) -> Any:
    """Return a template with each of its texts changed; what has no changed one is the same object."""
    if isinstance(template, str):
        return change(template)
    if isinstance(template, Mapping):
        entries = {key: _mapped(value, change) for key, value in template.items()}
        return entries if any(entries[key] is not template[key] for key in entries) else template
    if isinstance(template, tuple | list):
        items = [_mapped(item, change) for item in template]
        return type(template)(items) if any(a is not b for a, b in zip(items, template, strict=True)) else template
    if dataclasses.is_dataclass(template) and not isinstance(template, type):
        fields = {field.name: getattr(template, field.name) for field in dataclasses.fields(template) if field.init}
        changed = {name: _mapped(value, change) for name, value in fields.items()}
        # Made anew only where it has to be: some kinds of workload are costly to check.
        changed = {name: value for name, value in changed.items() if value is not fields[name]}
        return dataclasses.replace(template, **changed) if changed else template
    return template


def _filled(text: str, values: Mapping[str, Value], where: str) -> str:
    parts = []
    for literal, name, form in _parts(text):
        parts.append(literal)
        if name is None:
            continue
        value = values.get(name)
        if value is None:
            raise InvalidRequest(
                f"{where}: the column {name!r} is empty, but {text!r} uses it; fill it, or leave the row out"
            )
        try:
            parts.append(format(value, form))
        except ValueError as error:
            raise InvalidRequest(f"{where}, column {name!r}: {value!r} does not take the format {form!r}") from error
    return "".join(parts)


def _texts(template: Any) -> list[str]:
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(text)
        return text

    _mapped(template, collect)
    return texts


# The same few texts for every row of a grid.
@functools.lru_cache(maxsize=1024)
def _parts(text: str) -> tuple[tuple[str, str | None, str], ...]:
    """Return the literal texts, each with the name and the format that stand behind it."""
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise InvalidRequest(f"{text!r} cannot be filled: {error}; write a literal brace twice") from error
    parts = []
    for literal, name, form, conversion in parsed:
        if name is not None and (not name.isidentifier() or conversion or "{" in (form or "")):
            raise InvalidRequest(
                f"{text!r}: braces must hold the name of a column, as in {{lr}} or {{lr:.3g}}, got {{{name}}}; write a "
                "literal brace twice"
            )
        parts.append((literal, name, form or ""))
    return tuple(parts)
