"""Hyperparameters as the service passes them: texts alone, so every other value travels as JSON."""

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from raysm.errors import InvalidRequest

__all__ = ["hyperparameter_arguments", "hyperparameter_text"]


def hyperparameter_text(name: str, value: Any) -> str:
    """Return the text that carries a hyperparameter: a text or a path as it is, any other value as JSON.

    In an instance, ``SM_HPS`` and ``SM_HP_NAME`` read the text as JSON, and keep it as it is where it is none. So
    ``False``, ``["a"]``, ``None`` and ``0.1`` arrive as they were given. A text that looks like JSON, such as ``"1"``
    or ``"true"``, arrives as the number or truth value that it spells.

    Raises:
        InvalidRequest: JSON cannot hold the value.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, PurePath):
        return str(value)
    try:
        # The scalars of NumPy and torch are no numbers to JSON; what their item() returns is.
        return json.dumps(value, default=lambda item: item.item())
    except (TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        raise InvalidRequest(
            f"the hyperparameter {name!r} is a {type(value).__name__}, which JSON cannot hold; give a text, a number, "
            "a truth value, None, or lists and dictionaries of these"
        ) from error


def hyperparameter_arguments(hyperparameters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments by which SageMaker's SDK tells a script its hyperparameters: ``--epochs 3``.

    JSON values have JSON's spelling. A value that begins with ``-`` is one word with its name, ``--shift=-1e-05``,
    because argparse takes a second word that begins so as another option.
    """
    words: list[str] = []
    for name, text in hyperparameters.items():
        # Read and written again, as the SDK's own driver does it.
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        word = value if isinstance(value, str) else json.dumps(value)
        words += [f"--{name}={word}"] if word.startswith("-") else [f"--{name}", word]
    return tuple(words)
