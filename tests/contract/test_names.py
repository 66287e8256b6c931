"""Tests of ``raysm.contract.names``."""

from raysm.contract.names import natural


def test_numbers_in_names_count_as_numbers_and_equal_ones_by_the_name():
    names = ["part-10", "part-2", "part-02", "part", "b/part-1", "part-2b"]
    assert sorted(names, key=natural) == ["b/part-1", "part", "part-02", "part-2", "part-2b", "part-10"]
    # A digit of another script is a letter: int() would take it for a number.
    assert sorted(["x²", "x10"], key=natural) == ["x10", "x²"]
