"""A session that answers as a test says, and remembers what it was asked."""

import types

from raysm.errors import SessionEnded
from raysm.features.session.client.cell_result import CellResult
from raysm.features.session.client.handle import Session
from raysm.features.session.protocol import Outcome


class FakeCall:
    """A call that has ended: with ``value``, or with ``error``, of which the session tells ``told``."""

    def __init__(self, value=None, error=None, told=None, interrupted=False, printed=""):
        self.value, self.error, self.told = value, error, told
        self.is_interrupted, self.printed, self.is_cancelled = interrupted, printed, False

    def show(self, out=None, err=None, display=None):
        if self.is_interrupted:
            raise KeyboardInterrupt
        print(self.printed, end="", file=out)

    def cancel(self):
        self.is_cancelled = True

    def result(self):
        if self.error is not None:
            raise self.error
        return CellResult([], self.value)

    def outcome(self):
        if self.error is not None and self.told is None:
            raise SessionEnded("the session has ended")
        return None, Outcome(error=self.told)


class FakeSession(Session):
    """Attributes: cells (source, filename, instance), variables, kept_minutes, is_closed.

    ``calls`` are those of instances, by name; what is pushed to one is kept under
    ``NAME@INSTANCE``.
    """

    def __init__(self, name="digits", call=None, calls=None):
        self.fake_name, self.call = name, call or FakeCall()
        self.calls = calls or {}
        self.cells, self.variables, self.kept_minutes, self.is_closed = [], {}, None, False

    @property
    def name(self):
        return self.fake_name

    @property
    def state(self):
        if not self.calls:
            raise SessionEnded("it is none")
        return types.SimpleNamespace(hosts=tuple(self.calls))

    def cell(self, source, *, args=(), filename="", on=None):
        self.cells.append((source, filename, on))
        return self.calls.get(on, self.call)

    def push(self, on=None, /, **values):
        self.variables |= (
            values if on is None else {f"{name}@{on}": value for name, value in values.items()}
        )

    def pull(self, *names, on=None):
        names = names if on is None else tuple(f"{name}@{on}" for name in names)
        missing = [name for name in names if name not in self.variables]
        if missing:
            raise NameError(f"the session has no {missing[0]!r}")
        values = tuple(self.variables[name] for name in names)
        return values[0] if len(names) == 1 else values

    def keep(self, minutes):
        self.kept_minutes = minutes

    def dashboard(self):
        return types.SimpleNamespace(url="http://127.0.0.1:1/x/")

    def close(self):
        self.is_closed = True

    def __repr__(self):
        return f"<session {self.fake_name}>"
