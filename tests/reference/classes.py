"""Classes and modules of raysm as sections of a page: their texts, and the texts that stand under their fields."""

import ast
import enum
import inspect
import pydoc
import re
import textwrap
from collections.abc import Iterator

from raysm import errors as errors_module
from tests.reference.tables import table


def describe(name: str, heading: str) -> str:
    """Return the section about a dataclass, an enumeration or a module; ``heading`` is ``##``, or more of them."""
    item = pydoc.locate(name)
    text = plain(inspect.getdoc(item) or "")
    if inspect.ismodule(item):
        return text
    fields = [field for field in _fields(item) if field[0][0] != "_"]
    if issubclass(item, enum.Enum):
        rows = [[f"`{item[field].value}`", meaning] for field, _, meaning in fields]
        content = table(["value", "meaning"], rows)
    else:
        rows = [
            [f"`{field}`", f"`{default}`" if default else "", meaning]
            for field, default, meaning in fields
        ]
        content = table(["field", "default", "meaning"], rows)
    return f"{heading} {item.__name__}\n\n{text}\n\n{content}"


def errors() -> str:
    """Return the public errors, each with the first paragraph of its text."""
    classes = [item for item in vars(errors_module).values() if inspect.isclass(item)]
    own = [item for item in classes if issubclass(item, errors_module.RaysmError)]
    rows = [
        [f"`{item.__name__}`", f"`{item.__base__.__name__}`", _first(item), str(item.exit_status)]
        for item in own
    ]
    return table(["error", "is a", "meaning", "exit status of a command"], rows)


def plain(text: str) -> str:
    """Return a docstring as Markdown, without its sections about errors and attributes."""
    text = re.sub(r"\n(?:Raises|Attributes):\n.*", "", text, flags=re.DOTALL)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    # A literal block.
    text = re.sub(r"(?m)(?:^::|(?<=\w):(:))\n\n((?:(?: .*)?\n)+)", _fence, f"{text}\n")
    return text.strip()


def _fence(found: re.Match[str]) -> str:
    colon = f"{found[1]}\n\n" if found[1] else ""
    return f"{colon}```\n{textwrap.dedent(found[2]).strip()}\n```\n\n"


def _first(item: type) -> str:
    return " ".join(plain(inspect.getdoc(item) or "").partition("\n\n")[0].split())


def _fields(item: type) -> Iterator[tuple[str, str, str]]:
    """Yield name, default and meaning of each field; the meaning is the text that stands under it."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(item))).body
    for field, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign):
            name = ast.unparse(field.target)
        elif isinstance(field, ast.Assign):
            name = ast.unparse(field.targets[0])
        else:
            continue
        meaning = ""
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            meaning = " ".join(inspect.cleandoc(str(below.value.value)).split())
        yield name, _default(field.value), meaning


def _default(value: ast.expr | None) -> str:
    """Return how a default is written, ``{}`` for ``field(default_factory=dict)``."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "field":
        return ast.unparse(value) if value else ""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords}
    factory = given.get("default_factory", "")
    return given.get("default") or {"dict": "{}", "list": "[]"}.get(
        factory, f"{factory}()" if factory else ""
    )
