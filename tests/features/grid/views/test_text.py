"""A grid on a terminal."""

from raysm.features.grid.market import Place
from raysm.features.grid.plan import Assigned, GridPlan, PlannedPlace
from raysm.features.grid.row import Row
from raysm.features.grid.snapshot import Block, RegionView, Snapshot
from raysm.features.grid.store.costs import Money
from raysm.features.grid.views.text import plan_lines, screen_lines


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
    return Assigned(row=Row(key=key), offer=None, reasons=reasons)


def test_a_line_of_a_place_has_its_price_with_date_and_version():
    text = plan_lines(plan([place()]))
    assert text[0] == "grid drives: 0 rows, nothing is sent"
    assert text[3].split("  ")[0] == "us-east-1"
    assert "2026-11-01 (v1)" in text[3]
    assert "1.00 to 10.00 USD" in text[3]
    assert "costs   at least 1.00 USD; the rest is unknown" in plan_lines(
        plan([place(), place(usd=None)])
    )


def test_rows_of_one_cause_are_told_once_with_the_first_keys():
    rows = [impossible(f"k{number}", a="no quota", b="no quota") for number in range(20)]
    lines = plan_lines(plan([], [*rows, impossible("z", a="no image", b="blocked")]))
    assert "21 rows can run nowhere:" in lines
    assert "  k0, k1, k2, k3, k4, k5, k6, k7 and 12 more: no quota" in lines
    assert "  z: no image (1 places); blocked (1 places)" in lines


def region(name="us-east-1", **changes):
    fields = {
        "region": name, "open": {"running": 3, "pending": 1, "intended": 1}, "ended": {"OK": 7, "USER": 1},
        "instances": 10, "money": Money(spent_usd=12.5, wasted_usd=0.5, saved_usd=3.0),
    }  # fmt: skip
    return RegionView(**fields | changes)


def view(**changes):
    fields = {
        "name": "drives", "state": "open", "why": "", "at_s": 1000.0, "created_s": 0.0,
        "states": {"done": 7, "placed": 5, "waiting": 6, "failed": 1, "impossible": 1}, "regions": (region(),),
        "money": Money(spent_usd=12.5, wasted_usd=0.5, saved_usd=3.0, at_stake_usd=40.0), "budget_usd": 100.0,
        "prices": ("v1",), "blocks": (), "reasons": (("exit code: 1", 2),), "done": ((10.0, 1), (900.0, 7)),
        "done_per_hour": 22.0, "planned_usd": (40.0, 60.0), "rate_unit": "images/s", "rate": 3600.0,
        "rates": ((60.0, 1200.0), (120.0, 4800.0), (180.0, 3600.0)), "highest_rate": 4800.0,
    }  # fmt: skip
    return Snapshot(**fields | changes)


def screen(**changes):
    return "\n".join(screen_lines(view(**changes)))


def test_states_dollars_pace_and_prices_are_on_one_screen():
    text = screen()
    assert "20 rows: 7 done, 5 placed, 1 failed, 1 impossible, 6 waiting" in text
    assert "spent   12.50 USD of 100.00 USD" in text
    assert "wasted  0.50 USD   saved by spot 3.00 USD" in text
    assert "22.0 rows an hour; about 30 min left" in text
    assert "     2 x exit code: 1" in text
    assert "prices: v1" in text


def test_costs_without_a_price_are_unknown_unless_the_jobs_run_on_this_machine():
    assert "costs   unknown: no price of the jobs' instances is known" in screen(prices=())
    assert "costs   nothing: the jobs run on this machine" in screen(prices=(), is_free=True)
    assert "costs   nothing yet" in screen(prices=(), is_free=True, regions=())


def test_why_a_grid_a_region_and_a_place_stand_still_is_said():
    blocked = Block(place="ml.g5.xlarge in us-east-1", until_s=1600.0, reason="CapacityError")
    closed = region(closed_until_s=2000.0, reason="expired token")
    text = screen(state="paused", why="three equal failures", blocks=(blocked,), regions=(closed,))
    assert "grid drives: paused (three equal failures)" in text
    assert "blocked ml.g5.xlarge in us-east-1, 10 min more: CapacityError" in text
    assert "us-east-1 takes no job: expired token" in text


def test_interruptions_are_told_with_what_they_cost_at_most_where_there_are_any():
    assert "interrupt" not in screen()
    paid = Money(spent_usd=12.5, again_usd=0.25)
    text = screen(regions=(region(interruptions=1), region("eu-west-1")), money=paid)
    assert "spot    1 interruption, at most 0.25 USD of work done again" in text
    (head,) = (line for line in text.splitlines() if line.startswith("region"))
    assert "interrupted" in head.split()
    assert "spot    2,000 interruptions, at most" in screen(
        regions=(region(interruptions=2000),), money=paid
    )


def test_a_reason_is_told_without_its_traceback_and_with_what_to_do():
    words = "ValueError: 0,5; raysm grid retry\nTraceback (most recent call last):\n  File x\nValueError: 0,5"
    assert "     2 x ValueError: 0,5; raysm grid retry\n" in screen(reasons=((words, 2),))
    long = (
        "BlockFailed: block 3 failed\nTraceback (most recent call last):\n  File x\nKeyError: 'zip'"
    )
    assert "     2 x BlockFailed: block 3 failed … KeyError: 'zip'\n" in screen(
        reasons=((long, 2),)
    )


def test_the_rate_of_all_jobs_is_told_with_its_curve_and_what_was_planned():
    text = screen(regions=(region(rate=2400.0),))
    assert "rate    3,600 images/s combined, at most 4,800 so far  ▂█▆" in text
    assert "planned 40.00 to 60.00 USD" in text
    assert "2,400" in text
