"""In what jobs differ."""

from raysm.client.experiments.experiment import Summary
from raysm.views.experiments.comparison import Difference, compare
from tests.support.experiments import row


def summary(value):
    return Summary(last=value, lowest=value, highest=value, count=1)


ONE = row(
    name="digits-1",
    parameters={"lr": 0.1, "seed": 7},
    metrics={"loss": summary(0.5)},
    code="a" * 64,
    versions={"raysm": "0.1.0", "python": "3.11"},
    image="image:1",
    is_billed=False,
)
OTHER = row(
    name="digits-2",
    parameters={"lr": 0.1000001, "seed": 7, "depth": 3},
    metrics={"loss": summary(0.4), "auc": summary(0.9)},
    code="b" * 64,
    versions={"raysm": "0.2.0", "python": "3.11"},
    image="image:1",
    is_billed=False,
)


def test_only_what_differs_is_listed_and_the_rest_is_alike():
    comparison = compare([ONE, OTHER])
    assert comparison.jobs == ("digits-1", "digits-2")
    assert comparison.alike == ("seed=7",)
    assert [(each.group, each.name, each.values) for each in comparison.differences] == [
        # To the last digit: two that differ must not read alike.
        ("parameter", "lr", ("0.1", "0.1000001")),
        ("parameter", "depth", ("", "3")),
        ("metric", "loss", ("0.5", "0.4")),
        ("metric", "auc", ("", "0.9")),
        ("code", "", ("a" * 12, "b" * 12)),
        ("version", "raysm", ("0.1.0", "0.2.0")),
    ]


def test_a_job_differs_in_nothing_from_itself():
    comparison = compare([ONE, ONE])
    assert comparison.differences == ()
    assert repr(comparison) == "  digits-1  digits-1\nalike: lr=0.1, seed=7"


def test_what_is_not_known_of_one_is_said_so():
    differences = compare([ONE, row(name="theirs", is_billed=False)]).differences
    assert Difference(group="code", name="", values=("a" * 12, "unknown")) in differences
    assert Difference(group="version", name="raysm", values=("0.1.0", "unknown")) in differences


def test_it_is_shown_as_a_table_and_what_jobs_say_is_escaped():
    hostile = row(name="<script>", parameters={"<b>": "</table>"}, is_billed=False)
    html = compare([ONE, hostile])._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert html.count("</table>") == 1
    lines = repr(compare([ONE, OTHER])).splitlines()
    assert lines[1].split() == ["parameter", "lr", "0.1", "0.1000001"]
