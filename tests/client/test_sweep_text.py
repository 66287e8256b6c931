"""How a sweep looks in characters."""

from raysm.client.sweep_text import CELLS, sparkline, where_good_lies
from raysm.contract.events import Trial


def test_values_are_bars_from_the_lowest_to_the_highest():
    assert sparkline([3.0, 2.0, 1.0]) == "█▅▁"
    assert sparkline([1.0, 1.0]) == "▁▁"
    assert sparkline([]) == ""


def trials(count):
    return [
        Trial(number=n, status="done", value=float(n), params={"lr": 10.0 ** (-n / 4), "kind": "a", "n": 3})
        for n in range(count)
    ]


def test_a_parameter_with_a_range_shows_where_its_good_values_lie():
    (line,) = where_good_lies(trials(12))
    assert line.startswith("lr")
    assert line.endswith("best: 1")
    bars = line.split()[2]
    assert len(bars) == CELLS
    assert bars[-1] != "·"
    assert bars[0] == "·"
