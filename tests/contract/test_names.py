"""Tests of ``raysm.contract.names``."""

from raysm.contract import names
from raysm.contract.names import natural

VALUES = {name: value for name, value in vars(names).items() if name.isupper()}


def test_no_two_things_have_the_same_name():
    assert len(set(VALUES.values())) == len(VALUES)


def test_tags_and_labels_say_whose_they_are():
    assert all(value.startswith("raysm:") for name, value in VALUES.items() if name.endswith("_TAG"))
    assert all(value.startswith("raysm.io/") for name, value in VALUES.items() if name.startswith("LABEL_"))


def test_every_variable_but_the_toolkits_own_begins_with_raysm():
    variables = [value for value in VALUES.values() if value.isupper()]
    assert [value for value in variables if not value.startswith("RAYSM_")] == ["SAGEMAKER_BASE_DIR"]


def test_numbers_in_names_count_as_numbers_and_equal_ones_by_the_name():
    names = ["part-10", "part-2", "part-02", "part", "b/part-1", "part-2b"]
    assert sorted(names, key=natural) == ["b/part-1", "part", "part-02", "part-2", "part-2b", "part-10"]
    # A digit of another script is a letter: int() would take it for a number.
    assert sorted(["x²", "x10"], key=natural) == ["x10", "x²"]


def test_names_without_numbers_and_with_several_have_an_order_too():
    names = ["b", "a10", "a9", "a9-2", "a9-10", "10", "9", "a"]
    assert sorted(names, key=natural) == ["9", "10", "a", "a9", "a9-2", "a9-10", "a10", "b"]
