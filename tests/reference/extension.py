"""A Markdown extension that completes the pages of ``docs/reference`` while the site is built.

In git these pages list names, for readers of the repository, and have a comment and a line in italics where the site
has generated tables.
"""

import dataclasses
import inspect
import pydoc
import re
import types

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

from raysm.client.source.function import PickledCall
from raysm.request import Workload
from tests.reference import commands, tables

PARTS = {part.__name__.replace("_", "-"): part for part in (commands.commands, *tables.PARTS)}
"""By the NAME of ``<!-- generated: NAME -->``."""
VALUES = ("raysm.AWS", "raysm.Local", "raysm.contract.", "raysm.local.")
"""Classes that users only make or read: their methods are for raysm, as those of workloads are."""


class Complete(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = "\n".join(lines)
        text = re.sub(r"(?m)^- `(raysm\.[\w.]+)`(, returned to you)?$", lambda found: described(*found.groups()), text)
        text = re.sub(r"(?m)^<!-- generated: ([\w-]+) -->(?:\n\*.*\*)?$", lambda found: PARTS[found[1]](), text)
        # Files outside of docs are not in the site.
        text = re.sub(
            r"\[([^\]]+)\]\((?:\.\./)+(?:raysm|examples|containers|CONTRIBUTING|CHANGELOG)[^)]*\)", r"\1", text
        )
        # What begins a literal block in a docstring.
        return re.sub(r"(?m)^::$|(?<=\w):(?=:$)", "", text).split("\n")


def described(name: str, returned: str | None) -> str:
    """Return the directive by which mkdocstrings describes ``name``; users do not make what is ``returned``."""
    item = pydoc.locate(name)
    options = []
    if returned:
        options.append("merge_init_into_class: false")
    if name == "raysm.Session":
        options.append("inherited_members: true")
    if inspect.isclass(item) and issubclass(item, PickledCall):
        options.append("members: []")
    if inspect.ismodule(item) and not hasattr(item, "__all__") and name != "raysm.errors":
        options.append("members: []")
    elif dataclasses.is_dataclass(item):
        members = [field.name for field in dataclasses.fields(item) if field.init]
        if not name.startswith(VALUES) and not issubclass(item, Workload):
            own = vars(item).items()
            members += [key for key, value in own if key[0] != "_" and isinstance(value, property | types.FunctionType)]
        options += ["inherited_members: true", f"members: {members}"]
    return "\n".join(
        [f"\n::: {name}", "    options:" if options else "", *(f"      {option}" for option in options), ""]
    )


class Reference(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        # Before fenced code and HTML are taken out of the text.
        md.preprocessors.register(Complete(md), "reference", 100)


def makeExtension(**options: object) -> Reference:  # noqa: N802
    return Reference(**options)
