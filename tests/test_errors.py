import shlex

import pytest

from raysm.errors import option


@pytest.mark.parametrize("column", ["id", "the id", "o'clock", "$x"])
def test_an_option_is_named_so_that_a_shell_and_python_can_take_it(column):
    text = option("id_column", column)
    assert shlex.split(text.partition(" (")[0]) == ["--id-column", column]
    assert text.endswith(f"(in Python: id_column={column!r})")


def test_an_option_whose_value_is_the_readers_has_none():
    assert option("image") == "--image … (in Python: image=…)"
