"""The parts of cards of jobs and sessions as HTML.

A card has no style sheet, script or image. So every notebook can show it, it does not change the
page, and it remains when the notebook is opened without a kernel. Its colors are those of the text
around it, or half transparent.
"""

import html
from collections.abc import Sequence

from raysm.core.client.views.sparkline import plain

FRAME = (
    "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:10px 14px;"
    "max-width:860px;line-height:1.5"
)
SMALL = "opacity:.75;font-size:90%"
TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0;font-size:85%"

MAX_NAME = 60
"""Maximum number of characters of a name."""


def short(text: str, most: int = MAX_NAME) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def framed(parts: Sequence[str]) -> str:
    return plain(f'<div style="{FRAME}">{"".join(parts)}</div>')


def facts_html(facts: Sequence[tuple[str, str]]) -> str:
    cells = "".join(
        (
            f'<div><span style="{SMALL}">{html.escape(short(label))}</span>'
            f"<br>{html.escape(text[:200])}</div>"
        )
        for label, text in facts
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:4px 28px;margin:8px 0">{cells}</div>'


def in_code(code: str) -> str:
    summary = f'<summary style="{SMALL}">the same in code</summary>'
    return f'<details>{summary}<pre style="{TEXT}">{html.escape(code)}</pre></details>'
