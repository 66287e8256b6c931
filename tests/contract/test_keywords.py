"""A function that takes ``**options`` shows each of them, and refuses others."""

import inspect
from typing import TypedDict, Unpack

import pytest

from raysm.contract.keywords import check_names, documents_options
from raysm.errors import InvalidRequest


class Plain(TypedDict, total=False):
    """Options.

    Attributes:
        size: In rows.
        colour: Of the
            frame.
    """

    size: int
    colour: str


class More(Plain, total=False):
    """More of them.

    Attributes:
        deep: Or not.
    """

    deep: bool


def draw(shape: str, *, size: int = 7, **options: Unpack[More]) -> None:
    """Draw.

    Args:
        shape: Which.
        size: Its own.
        options: As ``More`` says.

    Raises:
        OSError: Never.
    """


drawn = documents_options(More, Plain, default_of={"deep": False}.get)(draw)


def test_the_signature_names_each_option_with_its_type_and_default():
    shown = inspect.signature(drawn).parameters
    assert list(shown) == ["shape", "size", "colour", "deep"]
    assert (shown["deep"].annotation, shown["deep"].default) == (bool, False)
    assert (shown["colour"].annotation, shown["colour"].default) == (str, None)


def test_a_parameter_of_the_functions_own_stays_as_it_is():
    assert inspect.signature(drawn).parameters["size"].default == 7


def test_the_docstring_has_the_texts_of_all_kinds_in_the_place_of_options():
    arguments = inspect.cleandoc(drawn.__doc__).partition("Args:\n")[2].partition("\n\n")[0]
    assert arguments.endswith("    deep: Or not.\n    size: In rows.\n    colour: Of the\n        frame.")
    assert "options" not in drawn.__doc__


def test_a_function_without_docstrings_keeps_none():
    def bare(**options: Unpack[Plain]) -> None: ...

    assert documents_options(Plain, default_of={}.get)(bare).__doc__ is None


def test_names_that_there_are_pass():
    check_names("draw", ["size", "colour"], {"size": 1})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("color", r"draw takes no option 'color'; did you mean colour\?"),
        ("zzz", r"draw takes no option 'zzz'; it takes size, colour"),
    ],
)
def test_a_name_that_there_is_not_is_refused_with_the_nearest(name, message):
    with pytest.raises(InvalidRequest, match=message):
        check_names("draw", ["size", "colour"], {name: 1})
