"""The plan on a terminal."""

from raysm.grid.assignment import Assigned
from raysm.grid.place import Place
from raysm.grid.plan import GridPlan, PlannedPlace
from raysm.grid.task import Task
from raysm.views.grid.plan_text import plan_lines, usd_range


def place(**changes):
    fields = {
        "place": Place(region="us-east-1", instance_type="ml.g5.xlarge", spot=True), "rows": 3, "instances": 6,
        "usd_per_hour": 1.408, "price_version": "v1", "price_as_of": "2026-11-01", "usd": (1.0, 10.0), "hours": 2.5,
    }  # fmt: skip
    return PlannedPlace(**fields | changes)


def plan(places, assigned=(), **changes):
    fields = {"name": "drives", "transfer_usd": 0.0, "most_usd": 99.0} | changes
    return GridPlan(assigned=tuple(assigned), places=tuple(places), **fields)


def impossible(key, **reasons):
    return Assigned(task=Task(key=key), offer=None, reasons=reasons)


def test_a_line_of_a_place_has_its_price_with_date_and_version():
    text = plan_lines(plan([place()]))
    assert text[0] == "grid drives: 0 rows, nothing is sent"
    assert text[3].split("  ")[0] == "us-east-1"
    assert "2026-11-01 (v1)" in text[3]
    assert "1.00 to 10.00 USD" in text[3]


def test_what_is_not_known_is_said_so():
    lines = plan_lines(plan([place(usd_per_hour=None, price_version="", usd=None, hours=None)], most_usd=None))
    assert "unknown" not in lines[3]
    assert any(line.startswith("costs   unknown") for line in lines)
    assert not any(line.startswith("at most") for line in lines)


def test_the_dollars_of_moving_data_are_told_or_said_to_be_unknown():
    assert any("2.00 USD of it for moving data" in line for line in plan_lines(plan([place()], transfer_usd=2.0)))
    assert any("the column input_gb" in line for line in plan_lines(plan([place()], transfer_usd=None)))


def test_rows_of_one_cause_are_told_once_with_the_first_keys():
    rows = [impossible(f"k{number}", a="no quota", b="no quota") for number in range(20)]
    lines = plan_lines(plan([], [*rows, impossible("z", a="no image", b="blocked")]))
    assert "21 rows can run nowhere:" in lines
    assert "  k0, k1, k2, k3, k4, k5, k6, k7 and 12 more: no quota" in lines
    assert "  z: no image (1 places); blocked (1 places)" in lines


def test_notes_stand_at_the_end():
    assert plan_lines(plan([], notes=("one", "two")))[-2:] == ["note: one", "note: two"]


def test_a_range_that_would_look_like_one_amount_is_one():
    assert usd_range((1.0, 1.001)) == "1.00 USD"
    assert usd_range(None) == "unknown"
