"""Extensions for the documentation's site, which ``zensical.toml`` names.

They need the extra ``docs``.

The pages in ``docs`` are plain Markdown. The site turns each listed name of the Python reference
into its description, which mkdocstrings reads from the source: no module of raysm is imported.
"""

import functools
import re
from typing import Any

import griffe
from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

NAME = re.compile(r"(?m)^- `(raysm\.[\w.]+)`(, returned to you)?(?:: .*)?$")
"""A listed name. Users do not make what is ``returned``."""
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:raysm|examples|containers|CONTRIBUTING|CHANGELOG)[^)]*\)"
)
"""A link to a file outside of ``docs``, which is not in the site."""
LITERAL = re.compile(r"(?m)^::$|(?<=\w):(?=:$)")
"""What begins a literal block in a docstring."""
VALUES = ("raysm.AWS", "raysm.Local")
"""Classes that users only make: their methods are for raysm, as those of workloads are."""


class Complete(Preprocessor):  # type: ignore[misc]
    def run(self, lines: list[str]) -> list[str]:
        text = NAME.sub(
            lambda found: describe(found[1], is_returned=bool(found[2])), "\n".join(lines)
        )
        return LITERAL.sub("", OUTSIDE.sub(r"\1", text)).split("\n")


class Reference(Extension):  # type: ignore[misc]
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        # Before fenced code and HTML are taken out of the text.
        md.preprocessors.register(Complete(md), "reference", 100)


class Positional(griffe.Extension):  # type: ignore[misc]
    """Correct fields with ``kw_only=False`` in a class of keywords.

    griffe shows them as keywords too.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        _correct(pkg)


def makeExtension(**options: Any) -> Reference:  # noqa: N802
    return Reference(**options)


def describe(name: str, *, is_returned: bool) -> str:
    """Return the directive by which mkdocstrings describes ``name``."""
    item = _package()[name.removeprefix("raysm.")]
    options = []
    if is_returned:
        options.append("merge_init_into_class: false")
    if name == "raysm.Session":
        options.append("inherited_members: true")
    if item.is_class:
        bases = {base.path for base in item.mro()}
        if "raysm.core.client.source.function.PickledCall" in bases:
            options.append("members: []")
        elif "dataclass" in item.labels:
            members = [parameter.name for parameter in item.parameters if parameter.name != "self"]
            if name not in VALUES and "raysm.core.request.workload.Workload" not in bases:
                members += [
                    key
                    for key, member in item.members.items()
                    if key[0] != "_" and _is_method(member)
                ]
            options += ["inherited_members: true", f"members: {members}"]
    lines = ["", f"::: {name}"]
    if options:
        lines += ["    options:", *(f"      {option}" for option in options)]
    return "\n".join([*lines, ""])


@functools.cache
def _package() -> Any:
    extensions = griffe.load_extensions("dataclasses")
    return griffe.load("raysm", search_paths=["."], extensions=extensions, resolve_aliases=True)


def _is_method(member: Any) -> bool:
    return (
        bool(member.is_function or "property" in member.labels)
        and "classmethod" not in member.labels
    )


def _correct(item: griffe.Object) -> None:
    for member in item.members.values():
        if member.is_alias or not (member.is_module or member.is_class):
            continue
        # Subclasses share the parameters of inherited fields.
        for name, field in member.attributes.items() if "__init__" in member.members else ():
            if not field.is_alias and "kw_only=False" in str(field.value):
                kind = griffe.ParameterKind.positional_or_keyword
                member.members["__init__"].parameters[name].kind = kind
        _correct(member)
