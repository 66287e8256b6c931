"""The drawing of what imports what, ``docs/imports.svg``, made from raysm's import statements."""

import ast
from collections.abc import Iterator
from pathlib import Path

import raysm

PACKAGE = Path(raysm.__file__).parent
BANDS = ("cli", "core.client", "instance", "core.protocol", "core.request")
"""Parts that others are built on, from top to bottom. All parts import ``errors`` and
``core.features``, which are left out."""
OTHERS = ("local", *BANDS[:-1])
"""Columns next to those of the features."""

LEFT = 128
COLUMN = 74
BAND = 40
TOP = 122


def imports() -> dict[str, set[str]]:
    """Return the parts of raysm that each part imports, at any place of its modules."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        names = [PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts]
        if names[1:] in (["__init__"], ["core", "__init__"], ["features", "__init__"]):
            continue
        part = _part_of(".".join(names))
        used = {_part_of(name) for name in _imported(ast.parse(path.read_text()))}
        found.setdefault(part, set()).update(used - {part})
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("raysm."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("raysm"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _part_of(name: str) -> str:
    """Return ``core.client``, ``features.grid`` or ``local`` for a dotted name in that part."""
    _, part, *rest = name.split(".")
    return f"{part}.{rest[0]}" if part in ("core", "features") and rest else part


def draw() -> str:
    """Return the drawing: a column for each part, with a dot on each band that it imports."""
    found = imports()
    features = sorted(part for part in found if part.startswith("features."))
    columns = [*features, *OTHERS]
    width = LEFT + COLUMN * len(columns) + 12
    height = TOP + BAND * len(BANDS) + 12
    title = "What each part of raysm imports: features side by side above the core"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"',
        '     aria-labelledby="title" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'  <title id="title">{title}</title>',
        f"  <!-- Written by {__name__.rpartition('.')[0]}. -->",
        "  <style>",
        "    .card { fill: #eaf2fb; stroke: #2f6db5 }",
        "    .other { fill: #fdebd3; stroke: #c9741a }",
        "    .band { fill: #7b8794; fill-opacity: 0.16 }",
        "    .line { stroke: #7b8794; fill: none }",
        "    .tie { stroke: #c9741a; fill: none; stroke-dasharray: 4 3 }",
        "    .dot { fill: #2f6db5 }",
        "    .in { fill: #16202c }",
        "    .out { fill: #7b8794 }",
        "  </style>",
        '  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#c9741a"/></marker></defs>',
    ]
    for number, band in enumerate(BANDS):
        y = TOP + BAND * number
        parts += [
            f'  <rect class="band" x="4" y="{y}" width="{width - 8}" height="{BAND - 8}" rx="6"/>',
            f'  <text class="out" x="14" y="{y + BAND // 2}">{band}</text>',
        ]
    for number, column in enumerate(columns):
        x = _middle(number)
        kind = "card" if column in features else "other"
        used = [row for row, band in enumerate(BANDS) if band in found[column]]
        # A feature that uses raysm's public names alone has no dot.
        end = _row(max(used)) if used else TOP - 18
        parts += [
            f'  <path class="line" d="M{x} {TOP - 18} V{end}"/>',
            f'  <rect class="{kind}" x="{x - 35}" y="{TOP - 44}" width="70" height="26" rx="5"/>',
            f'  <text class="in" x="{x}" y="{TOP - 27}" text-anchor="middle" font-size="10">'
            f"{column.removeprefix('features.')}</text>",
            *(f'  <circle class="dot" cx="{x}" cy="{_row(row)}" r="5"/>' for row in used),
        ]
    for number, column in enumerate(columns):
        for other in sorted(found[column] & {*features, "local"}):
            start = _middle(number)
            end = _middle(columns.index(other))
            parts.append(
                f'  <path class="tie" marker-end="url(#tip)" d="M{start} {TOP - 46}'
                f' C{start} 20 {end} 20 {end} {TOP - 46}"/>'
            )
    return "\n".join([*parts, "</svg>", ""])


def _middle(column: int) -> int:
    return LEFT + COLUMN * column + COLUMN // 2


def _row(band: int) -> int:
    return TOP + BAND * band + (BAND - 8) // 2
