"""A function as a workload: it is pickled here and called on the head."""

from collections.abc import Callable
from typing import Any

from raysm.core.client.source.function import PickledCall, check_function, code_digest, name_of
from raysm.core.client.units import PYTHON_VERSION
from raysm.core.request.workload import arguments_of
from raysm.features.script.request import PickledFunction


class Function(PickledCall):
    """A workload: ``fn(*args, **kwargs)``, called once, on the head, with Ray initialised; its value is the result.

    Attributes:
        fn: The function.
        args: Its positional arguments.
        kwargs: Its named arguments.
    """

    def __init__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Check that the function takes these arguments.

        Raises:
            InvalidRequest: It is not a function, or does not take them.
        """
        check_function(fn, args, kwargs)
        super().__init__(fn, args, kwargs)
        self.fn, self.args, self.kwargs = fn, args, kwargs

    def workload(self) -> PickledFunction:
        arguments, code = arguments_of(self.fn, self.args, self.kwargs), code_digest(self.fn)
        return PickledFunction(
            name=name_of(self.fn), python=PYTHON_VERSION, arguments=arguments, code=code
        )
