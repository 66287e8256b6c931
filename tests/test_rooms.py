"""The rooms of the house are those that the page about it shows."""

import re
from pathlib import Path

import raysm

PACKAGE = Path(raysm.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "explanation" / "architecture.md").read_text()
ROOMS = re.findall(r"^\| `raysm/(\w+)(?:/|\.py)` \|", PAGE, re.M)
DOORS = {"__init__", "__main__", *raysm._MODULES}
"""What is no room: by these others come in."""


def parts():
    """Return the names of the packages and modules of raysm."""
    return {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}


def test_each_room_of_the_page_is_there_once():
    assert len(ROOMS) == len(set(ROOMS))
    assert set(ROOMS) <= parts()


def test_what_is_no_door_is_a_room_of_the_page():
    assert parts() - DOORS <= set(ROOMS)


def test_the_order_of_imports_on_the_page_has_the_rooms_of_its_table():
    (order,) = re.findall(r"^`errors`.*?`cli`", PAGE, re.M | re.S)
    assert set(re.findall(r"`(\w+)`", order)) == set(ROOMS)
