"""What stands in a request for a function."""

from raysm.request.function import PickledFunction


def test_a_function_says_which_python_can_read_it_and_what_it_is_called():
    function = PickledFunction(name="module.work", python="3.11")
    assert (function.pickled_by, function.title) == ("3.11", "module.work")
    assert function.wrapper.name == "Function"
