"""One cell in a session: what is pushed, the source, what it prints, what is pulled, and how it ends.

What flows in are a checked line, the source and the notebook's variables; what flows out is the cell's value, and
variables.
"""

from collections.abc import MutableMapping
from typing import Any

from raysm.client.session.handle import Session
from raysm.errors import InvalidRequest
from raysm.views.magics.failing import interrupted, remote
from raysm.views.magics.options import nearest
from raysm.views.magics.words import CELL, CellLine

__all__ = ["run_cell"]


def run_cell(session: Session, line: CellLine, source: str, variables: MutableMapping[str, Any], number: int) -> Any:
    """Run ``source`` in the session; print here what it prints there; Ctrl-C interrupts it, and it alone.

    Args:
        session: Open.
        line: How.
        source: What stands below the line of the magic.
        variables: The notebook's.
        number: The cell's, as the notebook counts.

    Returns:
        What its last line shows; the future of a cell that nobody waits for.

    Raises:
        Exception: What the cell raised, to be shown with the session's frames.
        KeyboardInterrupt: It was interrupted.
    """
    _push(session, line, variables)
    # Lines are counted as the notebook shows them: the magic's own is the first.
    whole = source if line.is_whole else f"\n{source}"
    call = session.cell(whole, filename=f"Cell In[{number}]")
    if line.out is not None:
        variables[line.out] = call
    if line.is_async:
        return None if line.out is not None else call
    value = _wait(session, call)
    _pull(session, line, variables)
    return value


def _wait(session: Session, call: Any) -> Any:
    try:
        call.show()
        return call.result()
    except KeyboardInterrupt:
        raise interrupted(session.name) from None
    except Exception as error:
        raise remote(call, error) from None


def _push(session: Session, line: CellLine, variables: MutableMapping[str, Any]) -> None:
    missing = [name for name in line.push if name not in variables]
    if missing:
        own = [name for name in variables if not name.startswith("_")]
        hint = nearest(missing[0], own) if own else ""
        raise InvalidRequest(f"{CELL} --push: the notebook has no variable {missing[0]!r}{hint}")
    if line.push:
        session.push(**{name: variables[name] for name in line.push})


def _pull(session: Session, line: CellLine, variables: MutableMapping[str, Any]) -> None:
    if not line.pull:
        return
    try:
        values = session.pull(*line.pull)
    except NameError as error:
        raise InvalidRequest(f"{CELL} --pull: {error}") from None
    variables.update(zip(line.pull, values if len(line.pull) > 1 else (values,), strict=True))
