"""A grid as one HTML file."""

from html.parser import HTMLParser

from raysm.features.grid.row import RowState
from raysm.features.grid.row_view import GridRow
from raysm.features.grid.views.report import MAX_ROWS_SHOWN, report_page
from tests.features.grid.views.test_text import view


def grid_row(key, state=RowState.DONE, reason="", **more):
    facts = dict.fromkeys(
        (
            "job",
            "region",
            "instance_type",
            "count",
            "spot",
            "sent_s",
            "started_s",
            "ended_s",
            "usd",
            "rate",
        )
    )
    return GridRow(key=key, state=state, attempts=1, reason=reason, parameters={}, **facts | more)


class Page(HTMLParser):
    """The names of a page's elements, its addresses and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.addresses = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [
            value for name, value in attributes if name in ("src", "href", "srcset", "data")
        ]

    def handle_data(self, data):
        self.text += data


def test_the_page_has_the_figures_the_regions_the_curve_and_the_rows():
    page = Page(
        report_page(view(), [grid_row("sf", RowState.FAILED, "exit code: 1"), grid_row("st")])
    )
    assert page.tags.count("svg") == 2
    for text in (
        "grid drives: open",
        "7 of 20",
        "12.50 USDspent, of 100.00 USD allowed",
        "us-east-1",
        "exit code: 1",
        "sf",
        "v1",
    ):
        assert text in page.text


def test_it_asks_nobody_for_anything():
    text = report_page(view(), [])
    page = Page(text)
    assert page.addresses == []
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    # The one address is the name of SVG's own language.
    assert text.count("http") == text.count("http://www.w3.org/2000/svg")


def test_of_ten_thousand_rows_the_file_stays_below_a_megabyte_and_says_what_is_left_out():
    rows = (
        grid_row(f"campaign-{number}", RowState.FAILED, "AlgorithmError: " + "x" * 300)
        for number in range(10_000)
    )
    text = report_page(view(states={"failed": 10_000}), rows)
    assert len(text.encode()) < 1_000_000
    assert f"and {10_000 - MAX_ROWS_SHOWN:,} more: raysm grid rows drives" in text
