"""One cell on several instances: its calls flow in, by instance; what each printed and shows flows out.

They run at once; what they print is shown one instance after the other, each line with the instance before it.
"""

import io
import sys
from typing import Any, TextIO

from raysm.client.session.handle import Session
from raysm.views.magics.failing import interrupted, remote

__all__ = ["Labelled", "Several", "await_all"]


class Several(dict[str, Any]):
    """What there is of each instance, by its name: calls, or values."""

    def __repr__(self) -> str:
        return "\n".join(f"{host}: {value!r}" for host, value in self.items())


class Labelled(io.TextIOBase):
    """Writes each line with what stands before it."""

    def __init__(self, label: str, stream: TextIO) -> None:
        """Begin.

        Args:
            label: Before each line.
            stream: Takes what is written.
        """
        self._label, self._stream, self._is_new = label, stream, True

    def write(self, text: str) -> int:
        """Write ``text``, which may be any part of a line, or several."""
        # print() writes its newline by itself, and a progress bar half a line at a time.
        for line in text.splitlines(keepends=True):
            self._stream.write(f"[{self._label}] {line}" if self._is_new else line)
            self._is_new = line.endswith("\n")
        return len(text)

    def end(self) -> None:
        """End a line that was begun: the next instance's begins another one."""
        if not self._is_new:
            self._stream.write("\n")

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()


def await_all(session: Session, calls: Several) -> Several:
    """Wait for the calls of a cell, and return what the last line of each shows, where it shows anything.

    Raises:
        Exception: What the first of them raised that failed; what all of them printed is shown before.
        KeyboardInterrupt: They were interrupted.
    """
    values, failures = Several(), []
    try:
        for host, call in calls.items():
            _show(host, call)
            # To the end of all: what the others printed may say why one failed.
            try:
                value = call.result()
            except Exception as error:
                failures.append((host, call, error))
            else:
                values[host] = value
    except KeyboardInterrupt:
        # The one that was shown is interrupted already.
        for call in calls.values():
            call.cancel()
        raise interrupted(session.name) from None
    if failures:
        print(f"failed on {', '.join(host for host, *_ in failures)}", file=sys.stderr)  # noqa: T201
        _, call, first = failures[0]
        raise remote(call, first) from None
    # A cell that shows nothing shows nothing here either, not a None for each instance.
    return Several({host: value for host, value in values.items() if value is not None})


def _show(host: str, call: Any) -> None:
    out, err = Labelled(host, sys.stdout), Labelled(host, sys.stderr)
    call.show(out, err)
    for stream in (out, err):
        stream.end()
