"""Keywords of public functions, written once as a TypedDict: editors read the type, people read the text.

What flows in are a function that takes ``**options`` and the TypedDict of these; what flows out is the same function,
whose ``help`` and signature name each option, and the options of one call, checked by their names.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from raysm.errors import InvalidRequest

__all__ = ["check_names", "documents_options"]

F = TypeVar("F", bound=Callable[..., Any])


def check_names(function: str, names: Collection[str], options: Mapping[str, Any]) -> None:
    """Refuse options that a function does not take.

    Args:
        function: Its name, for the message.
        names: What it takes.
        options: What it was given.

    Raises:
        InvalidRequest: The name, and the nearest one that there is.
    """
    for name in options:
        if name not in names:
            import difflib  # for a slip alone: most calls have none

            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(names)}"
            raise InvalidRequest(f"{function} takes no option {name!r}{hint}")


def documents_options(*kinds: type, default_of: Callable[[str], Any]) -> Callable[[F], F]:
    """Return a decorator that lets ``help`` show each keyword of ``**options`` by its name, with its text.

    The text stands at the TypedDict once; without this, a reader of ``help(raysm.submit)`` would see ``**options``.

    Args:
        kinds: The TypedDict of the function's ``**options``, and those that it extends: a TypedDict does not tell
            which one it extends before Python 3.12.
        default_of: Returns what an option is where the caller does not choose it.
    """

    def decorate(function: F) -> F:
        function.__doc__ = _with_texts(function.__doc__, kinds)
        signature = _with_names(inspect.signature(function), kinds[0], default_of)
        # inspect, and so help(), prefers this to the parameters of the code.
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return decorate


def _with_texts(doc: str | None, kinds: Collection[type]) -> str | None:
    """Return a docstring whose line of ``options`` is replaced by one for each of them."""
    if doc is None:  # python -OO
        return None
    lines = []
    for line in inspect.cleandoc(doc).splitlines():
        lines += _texts(kinds) if line.startswith("    options: ") else [line]
    return "\n".join(lines)


def _texts(kinds: Collection[type]) -> list[str]:
    texts = [inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2] for kind in kinds]
    return [line for text in texts for line in text.splitlines()]


def _with_names(signature: inspect.Signature, kind: type, default_of: Callable[[str], Any]) -> inspect.Signature:
    named = [item for item in signature.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
    # inspect refuses two parameters of one name: where both declare it, the function's own stays.
    names = {item.name for item in named}
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default_of(name), annotation=hint)
        for name, hint in kind.__annotations__.items()
        if name not in names
    ]
    return signature.replace(parameters=[*named, *options])
