"""Google-style docstrings as Markdown."""

import inspect
import re
from dataclasses import dataclass, field

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")


@dataclass(kw_only=True)
class Docstring:
    text: str = ""
    """What stands before the first section, as Markdown."""
    entries: dict = field(default_factory=dict)
    """By section, the text of each name."""
    returns: str = ""
    """What is said of the value."""


def read(item):
    """Return the parts of the docstring of ``item``, a class, function or module, or of a text."""
    text = item if isinstance(item, str) else inspect.getdoc(item) or ""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\n", inspect.cleandoc(text), flags=re.MULTILINE)
    docstring = Docstring(text=markdown(parts[0]))
    for section, body in zip(parts[1::2], parts[2::2], strict=True):
        # A section ends where the indentation does.
        indented = re.match(r"(?:(?: {4}.*)?\n?)*", body)[0]
        lines = inspect.cleandoc("\n" + indented)
        if section in ("Returns", "Yields"):
            docstring.returns = sentence(lines)
        else:
            docstring.entries[section] = _entries(lines)
    return docstring


def markdown(text):
    """Return text with its literals and its literal blocks as Markdown has them; every paragraph on one line."""
    paragraphs = []
    literal = False
    for paragraph in re.split(r"\n\n+", inspect.cleandoc(text)):
        if literal or paragraph.startswith("    "):
            paragraphs.append("```text\n" + _literals(inspect.cleandoc("\n" + paragraph)).replace("`", "") + "\n```")
            literal = False
            continue
        literal = paragraph.rstrip().endswith("::")
        words = paragraph.rstrip().removesuffix("::").rstrip() if literal else paragraph
        if words:
            paragraphs.append(_paragraph(words))
    return "\n\n".join(paragraphs)


def sentence(text):
    return " ".join(_literals(text).split())


def cell(text):
    return sentence(text).replace("|", "\\|")


def code(text):
    return f"`{text}`".replace("|", "\\|") if text else ""


def table(titles, rows):
    """Return a table; its cells are Markdown already."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _paragraph(text):
    if text.lstrip().startswith("- "):
        return "\n".join(f"- {sentence(item)}" for item in re.split(r"^\s*- ", text, flags=re.MULTILINE)[1:])
    return sentence(text)


def _literals(text):
    return text.replace("``", "`")


def _entries(text):
    """Read ``name: meaning``, continued by what is indented."""
    entries = {}
    for item in re.split(r"\n(?=\S)", text):
        name, _, meaning = item.partition(":")
        entries[name.strip()] = sentence(meaning)
    return entries
