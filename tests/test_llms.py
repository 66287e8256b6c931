"""The files of the site for language models."""

import re
from pathlib import Path

from tests.reference.llms import everything, index

DOCS = Path(__file__).parents[1] / "docs"


def test_the_index_has_each_page_of_the_docs_with_its_title_and_a_sentence():
    lines = re.findall(r"(?m)^- \[(.+)\]\((\S+)\.html\): (.+)$", index())
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    # The site makes an index of a README.
    assert {page for _, page, _ in lines} == pages - {"README"} | {"index"}
    assert not any("```" in sentence for _, _, sentence in lines)


def test_all_pages_are_in_one_file():
    text = everything()
    for page in DOCS.rglob("*.md"):
        assert f"<!-- {page.relative_to(DOCS)} -->" in text
    assert "max_cost_per_day" in text
