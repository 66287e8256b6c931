"""What a module or class declares, with the string that stands under each: read from the source.

Python keeps no docstring of a field or a constant; the source has it.
"""

import ast
import inspect
import sys
import textwrap
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """One name that is assigned a value at the top of a module or class."""

    name: str
    """Its name."""
    type: str
    """Its annotation, as it is written; empty where there is none."""
    value: str | None
    """What it is assigned, as it is written; None where it must be given."""
    meaning: str
    """The string under it; empty where there is none."""


def declarations(body):
    """Yield the public declarations in the statements of a module or class, in their order."""
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign):
            target, annotation = statement.target, ast.unparse(statement.annotation)
        elif isinstance(statement, ast.Assign):
            target, annotation = statement.targets[0], ""
        else:
            continue
        if isinstance(target, ast.Name) and not target.id.startswith("_") and "ClassVar" not in annotation:
            yield Declaration(
                name=target.id, type=annotation, value=_value(statement.value), meaning=_string(following) or ""
            )


def constants(module):
    """Return the declarations of a module that have a meaning."""
    return [item for item in declarations(ast.parse(inspect.getsource(module)).body) if item.meaning]


def fields(cls):
    """Return the fields of a class and of its bases, the bases' first."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    found = {}
    # The bases as they are written: a TypedDict has forgotten its own.
    for base in (getattr(sys.modules[cls.__module__], ast.unparse(name), None) for name in node.bases):
        if getattr(base, "__module__", "").startswith("raysm"):
            found |= {item.name: item for item in fields(base)}
    return list((found | {item.name: item for item in declarations(node.body)}).values())


def _value(node):
    """Return a default for people: that of ``field(default_factory=dict)`` is ``{}``."""
    if node is None:
        return None
    text = ast.unparse(node)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("field"):
        given = {item.arg: item.value for item in node.keywords}
        if "default" in given:
            return ast.unparse(given["default"])
        if "default_factory" in given:
            made = ast.unparse(given["default_factory"])
            return {"dict": "{}", "list": "[]", "tuple": "()"}.get(made, f"{made}()")
        return None
    return text


def _string(node):
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return None
