"""The documentation for language models: ``llms.txt`` and ``llms-full.txt``, as https://llmstxt.org describes them.

``python3 -m tests.reference.llms site`` writes both into the folder of the built site: an index of all pages, and
all pages in one.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
BLOCK = re.compile(r"```.*?```\n*", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
SENTENCE = re.compile(r"(.+?[.?!:])(?=\s|$)", re.DOTALL)


def index() -> str:
    """Return ``llms.txt``: each page with its address in the site and its first sentence."""
    site = _site()
    parts = [f"# {site['site_name']}", f"> {site['site_description']}."]
    for title, pages in _sections(site["nav"]):
        lines = [f"- [{_title(page)}]({_address(page)}): {_summary(page)}" for page in pages]
        parts.append("\n".join([f"## {title}", "", *lines]))
    return "\n\n".join(parts) + "\n"


def everything() -> str:
    """Return ``llms-full.txt``: the Markdown of all pages, in the order of the navigation."""
    pages = [page for _, pages in _sections(_site()["nav"]) for page in pages]
    return "\n".join(f"<!-- {page} -->\n\n{_text(page)}" for page in pages)


def _site() -> dict:
    return tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


def _sections(nav: list) -> Iterator[tuple[str, list[str]]]:
    """Yield the titles of the navigation with all pages below them."""
    for entry in nav:
        ((title, below),) = entry.items()
        yield title, list(_pages(below))


def _pages(below: str | list | dict) -> Iterator[str]:
    if isinstance(below, str):
        yield below
        return
    for each in below.values() if isinstance(below, dict) else below:
        yield from _pages(each)


def _address(page: str) -> str:
    # The site makes an index of a README.
    return re.sub(r"README$", "index", page.removesuffix(".md")) + ".html"


def _text(page: str) -> str:
    return COMMENT.sub("", (ROOT / "docs" / page).read_text())


def _title(page: str) -> str:
    return _text(page).partition("\n")[0].removeprefix("# ")


def _summary(page: str) -> str:
    """Return the first sentence of a page, without its links."""
    paragraphs = BLOCK.sub("", _text(page)).split("\n\n")[1:]
    first = next(text for text in paragraphs if re.match(r"[\w`*\[]", text))
    text = LINK.sub(r"\1", " ".join(first.split()))
    found = SENTENCE.match(text)
    return (text if found is None else found[1]).rstrip(":")


def main(folder: str) -> None:
    for name, text in (("llms.txt", index()), ("llms-full.txt", everything())):
        (Path(folder) / name).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
