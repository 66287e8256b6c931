"""The pages of ``docs`` that have generated parts, and a drawing, as they are and as they should be.

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. In lists of Python names,
each line has the first sentence of the name's docstring.
"""

import inspect
import pydoc
import re
from pathlib import Path

from tests.reference import classes, commands, drawing, tables

DOCS = Path(__file__).parents[2] / "docs"
DRAWING = DOCS / "imports.svg"
COMMAND = "python3 -m tests.reference"
PARTS = {
    part.__name__.replace("_", "-"): part
    for part in (commands.commands, classes.errors, *tables.PARTS)
}
"""By NAME. A NAME with a dot is that of a class or a module of raysm."""


def old_pages() -> dict[Path, str]:
    """Return what each page that is not up to date should be."""
    texts = {path: path.read_text() for path in sorted(DOCS.rglob("*.md"))}
    made = {path: complete(text) for path, text in texts.items()}
    made[DRAWING] = drawing.draw()
    texts[DRAWING] = DRAWING.read_text() if DRAWING.exists() else ""
    return {path: new for path, new in made.items() if new != texts[path]}


def complete(text: str) -> str:
    """Return a page with its generated parts made again."""
    part = re.compile(r"(?ms)^<!-- generated: (\S+) -->\n.*?^<!-- end -->$")
    heading = "###" if "\n## " in part.sub("", text) else "##"
    text = part.sub(lambda found: _part(found[1], heading), text)
    return re.sub(
        r"(?m)^- `(raysm\.[\w.]+)`(, returned to you)?(?:: .*)?$",
        lambda found: _line(*found.groups()),
        text,
    )


def _part(name: str, heading: str) -> str:
    made = classes.describe(name, heading) if "." in name else PARTS[name]()
    return f"<!-- generated: {name} -->\n\n{made}\n\n<!-- end -->"


def _line(name: str, returned: str | None) -> str:
    summary = classes.plain(inspect.getdoc(pydoc.locate(name)) or "").partition("\n\n")[0]
    return f"- `{name}`{returned or ''}: {' '.join(summary.split())}"
