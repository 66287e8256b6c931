"""Write the pages: ``python -m tests.reference``."""

import functools
from pathlib import Path

from tests.reference import api, aws, commands, facts

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

MARK = "<!-- Written by `python -m tests.reference` from the code: change it there. -->\n\n"
"""How a written page begins."""


@functools.cache
def written():
    pages = api.pages() | commands.pages() | facts.pages() | aws.pages()
    return {FOLDER / name: MARK + text for name, text in pages.items()}


def main():
    """Write the pages, and remove those that are none any more."""
    pages = written()
    for path in FOLDER.rglob("*.md"):
        if path not in pages and path.read_text().startswith(MARK):
            path.unlink()
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"{len(pages)} pages in {FOLDER}")


if __name__ == "__main__":
    main()
