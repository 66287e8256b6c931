"""Run one cell in a session, on one instance or several, and show how it ended."""

import contextlib
import functools
import io
import sys
from argparse import Namespace
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, TextIO

from raysm.errors import CallFailed, InvalidRequest, RaysmError
from raysm.features.session.client.calls import Call
from raysm.features.session.client.cell_result import Shown, show_display
from raysm.features.session.client.handle import Session

HEAD = "head"
ALL = "all"


class PerInstance(dict[str, Any]):
    def __repr__(self) -> str:
        return "\n".join(f"{host}: {value!r}" for host, value in self.items())

    def _ipython_display_(self) -> None:
        for host, value in self.items():
            if isinstance(value, Shown) and len(value.data) > 1:
                print(f"{host}:")  # noqa: T201
                show_display({"data": value.data, "metadata": value.metadata}, sys.stdout)
            else:
                print(f"{host}: {value!r}")  # noqa: T201


class Labelled(io.TextIOBase):
    def __init__(self, label: str, stream: TextIO) -> None:
        self._label = label
        self._stream = stream
        self._is_new = True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            self._stream.write(f"[{self._label}] {line}" if self._is_new else line)
            # A progress bar draws its line anew after a carriage return.
            self._is_new = line.endswith(("\n", "\r"))
        return len(text)

    def end(self) -> None:
        if not self._is_new:
            self._stream.write("\n")

    def flush(self) -> None:
        # The garbage collector flushes this too, and Python 3.13 prints the error of a stream that
        # is closed by then.
        if not self._stream.closed:
            self._stream.flush()


def run_cell(
    session: Session,
    options: Namespace,
    source: str,
    variables: MutableMapping[str, Any],
    number: int,
) -> Any:
    """Run ``source`` in the session and print its output here; Ctrl-C interrupts only this cell."""
    hosts = _hosts(session, options.on)
    # Push to all instances before the cell starts on any, because it may wait for the others.
    for host in hosts:
        _push(session, options.push, variables, host)
    # The notebook counts the line of the magic too.
    whole = source if options.whole else f"\n{source}"
    calls = {
        host or HEAD: session.cell(whole, filename=f"Cell In[{number}]", on=host) for host in hosts
    }
    future = PerInstance(calls) if len(calls) > 1 else next(iter(calls.values()))
    if options.out is not None:
        variables[options.out] = future
    if options.is_async:
        return None if options.out is not None else future
    value = await_cell(session, future)
    _pull(session, options.pull, variables, hosts)
    return value


def _hosts(session: Session, on: Sequence[str]) -> list[str | None]:
    if tuple(on) in ((), (HEAD,)):
        return [None]
    hosts = session.state.hosts
    if tuple(on) == (ALL,):
        return list(hosts)
    for host in on:
        if host not in hosts:
            raise InvalidRequest(
                f"--on: the session has no instance {host!r}; it has {', '.join(hosts)}"
            )
    return list(on)


def _push(
    session: Session, names: Sequence[str], variables: Mapping[str, Any], host: str | None
) -> None:
    missing = [name for name in names if name not in variables]
    if missing:
        raise InvalidRequest(f"--push: the notebook has no variable {missing[0]!r}")
    if names:
        session.push(host, **{name: variables[name] for name in names})


def _pull(
    session: Session,
    names: Sequence[str],
    variables: MutableMapping[str, Any],
    hosts: list[str | None],
) -> None:
    if not names:
        return
    try:
        pulled = {host or HEAD: session.pull(*names, on=host) for host in hosts}
    except NameError as error:
        raise InvalidRequest(f"--pull: {error}") from None
    rows = {host: values if len(names) > 1 else (values,) for host, values in pulled.items()}
    for number, name in enumerate(names):
        by_host = PerInstance({host: values[number] for host, values in rows.items()})
        variables[name] = by_host if len(by_host) > 1 else next(iter(by_host.values()))


def await_cell(session: Session, future: Any) -> Any:
    if isinstance(future, PerInstance):
        return _await_all(session, future)
    try:
        future.show()
        return future.result().result
    except KeyboardInterrupt:
        raise _interrupted(session) from None
    except Exception as error:
        raise _remote(future, error) from None


def _await_all(session: Session, calls: PerInstance) -> PerInstance:
    values = PerInstance()
    failures = []
    try:
        for host, call in calls.items():
            out = Labelled(host, sys.stdout)
            err = Labelled(host, sys.stderr)
            call.show(out, err, functools.partial(_show_labelled, host, out))
            out.end()
            err.end()
            # Wait for all instances: the output of the others may explain a failure.
            try:
                value = call.result().result
            except Exception as error:
                failures.append((host, call, error))
            else:
                values[host] = value
    except KeyboardInterrupt:
        for call in calls.values():
            call.cancel()
        raise _interrupted(session) from None
    if failures:
        print(f"failed on {', '.join(host for host, *_ in failures)}", file=sys.stderr)  # noqa: T201
        _, call, first = failures[0]
        raise _remote(call, first) from None
    return PerInstance({host: value for host, value in values.items() if value is not None})


def _show_labelled(host: str, out: Labelled, bundle: Mapping[str, Any]) -> None:
    out.end()
    if "clear" not in bundle and not bundle.get("update"):
        out.write("\n")
    show_display(bundle, sys.stdout)


# IPython asks an exception for _render_traceback_() before it draws its own traceback, whose frames
# would be raysm's.


def in_one_line(error: Exception) -> Exception:
    return (
        _with_lines(error, [f"{type(error).__name__}: {error}"])
        if isinstance(error, RaysmError)
        else error
    )


def _remote(call: Call[Any], error: Exception) -> Exception:
    """Return a call's exception, shown with the session's frames and none of this process."""
    failure = None
    with contextlib.suppress(RaysmError):
        failure = call.outcome()[1].error
    if failure is None:  # the connection failed, and not the cell
        return in_one_line(error)
    lines = (failure.traceback or failure.headline).rstrip().splitlines()
    # IPython draws these itself, without asking the exception.
    if isinstance(error, SyntaxError | BaseExceptionGroup):
        error = CallFailed(
            failure.message, error_type=failure.type, remote_traceback=failure.traceback
        )
    return _with_lines(error, lines)


def _interrupted(session: Session) -> KeyboardInterrupt:
    error = KeyboardInterrupt()
    name = session.name
    text = (
        "KeyboardInterrupt: the cell was interrupted; "
        f"the session {name} and its namespace are still there"
    )
    error._render_traceback_ = lambda: [text]  # type: ignore[attr-defined]
    return error


def _with_lines(error: Exception, lines: Sequence[str]) -> Exception:
    try:
        error._render_traceback_ = lambda: list(lines)  # type: ignore[attr-defined]
    except AttributeError:  # a class with __slots__
        error = CallFailed("\n".join(lines), error_type=type(error).__name__)
        error._render_traceback_ = lambda: list(lines)  # type: ignore[attr-defined]
    return error
