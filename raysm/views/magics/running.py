"""One cell in a session: what is pushed, the source, what it prints, what is pulled, and how it ends.

What flows in are a checked line, the source and the notebook's variables; what flows out is the cell's value, and
variables.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any

from raysm.client.session.handle import Session
from raysm.errors import InvalidRequest
from raysm.views.magics.failing import interrupted, remote
from raysm.views.magics.options import nearest
from raysm.views.magics.several import Several, await_all
from raysm.views.magics.words import ALL, CELL, HEAD, CellLine

__all__ = ["await_future", "run_cell"]

OF_IPYTHON = ("In", "Out", "exit", "get_ipython", "open", "quit")
"""Variables of each notebook that nobody has made; no message names them."""


def run_cell(session: Session, line: CellLine, source: str, variables: MutableMapping[str, Any], number: int) -> Any:
    """Run ``source`` in the session; print here what it prints there; Ctrl-C interrupts it, and it alone.

    Args:
        session: Open.
        line: How.
        source: What stands below the line of the magic.
        variables: The notebook's.
        number: The cell's, as the notebook counts.

    Returns:
        What its last line shows, of several instances by their names; the future of a cell that nobody waits for.

    Raises:
        Exception: What the cell raised, to be shown with the session's frames.
        KeyboardInterrupt: It was interrupted.
    """
    hosts = _hosts(session, line)
    # To all before any begins: a cell may wait for the others'.
    for host in hosts:
        _push(session, line, variables, host)
    # Lines are counted as the notebook shows them: the magic's own is the first.
    whole = source if line.is_whole else f"\n{source}"
    calls = {host or HEAD: session.cell(whole, filename=f"Cell In[{number}]", on=host) for host in hosts}
    # Of one instance the call itself: so it was before there were several.
    future = Several(calls) if len(calls) > 1 else next(iter(calls.values()))
    if line.out is not None:
        variables[line.out] = future
    if line.is_async:
        return None if line.out is not None else future
    value = await_future(session, future)
    _pull(session, line, variables, hosts)
    return value


def await_future(session: Session, future: Any) -> Any:
    """Wait for a cell, print what it prints, and return what its last line shows; raises what ``run_cell`` does."""
    if isinstance(future, Several):
        return await_all(session, future)
    try:
        future.show()
        return future.result()
    except KeyboardInterrupt:
        raise interrupted(session.name) from None
    except Exception as error:
        raise remote(future, error) from None


def _hosts(session: Session, line: CellLine) -> list[str | None]:
    """Return the instances that a cell is to run on; None is the head, whose namespace is the session's own."""
    if line.on in ((), (HEAD,)):
        return [None]
    # Asked only where it matters: it is a request, and most cells run on the head.
    hosts = session.state.hosts
    if line.on == (ALL,):
        return list(hosts)
    # Before anything is sent: of two instances the one that there is would run it.
    for host in line.on:
        if host not in hosts:
            raise InvalidRequest(f"{CELL} --on: the session has no instance {host!r}{nearest(host, hosts)}")
    return list(line.on)


def _push(session: Session, line: CellLine, variables: Mapping[str, Any], host: str | None) -> None:
    missing = [name for name in line.push if name not in variables]
    if missing:
        names = [name for name in variables if not name.startswith("_") and name not in OF_IPYTHON]
        hint = nearest(missing[0], names) if names else ""
        raise InvalidRequest(f"{CELL} --push: the notebook has no variable {missing[0]!r}{hint}")
    if line.push:
        session.push(host, **{name: variables[name] for name in line.push})


def _pull(session: Session, line: CellLine, variables: MutableMapping[str, Any], hosts: list[str | None]) -> None:
    if not line.pull:
        return
    try:
        pulled = {host or HEAD: session.pull(*line.pull, on=host) for host in hosts}
    except NameError as error:
        raise InvalidRequest(f"{CELL} --pull: {error}") from None
    rows = {host: values if len(line.pull) > 1 else (values,) for host, values in pulled.items()}
    for number, name in enumerate(line.pull):
        by_host = Several({host: values[number] for host, values in rows.items()})
        # Of one instance its value, of several all of them: none stands for the others.
        variables[name] = by_host if len(by_host) > 1 else next(iter(by_host.values()))
