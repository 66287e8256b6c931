"""A session that answers as a test says, and remembers what it was asked."""

import types

from raysm.client.session.handle import Session
from raysm.contract.session import Outcome
from raysm.errors import SessionEnded


class FakeCall:
    """A call that has ended: with ``value``, or with ``error``, of which the session tells ``told``."""

    def __init__(self, value=None, error=None, told=None, interrupted=False, printed=""):
        self.value, self.error, self.told = value, error, told
        self.is_interrupted, self.printed = interrupted, printed

    def show(self):
        if self.is_interrupted:
            raise KeyboardInterrupt
        print(self.printed, end="")

    def result(self):
        if self.error is not None:
            raise self.error
        return self.value

    def outcome(self):
        if self.error is not None and self.told is None:
            raise SessionEnded("the session has ended")
        return None, Outcome(error=self.told)


class FakeSession(Session):
    """Attributes: cells (source, filename), variables, kept_minutes, is_closed."""

    def __init__(self, name="digits", call=None, matches=()):
        self.fake_name, self.call, self.names = name, call or FakeCall(), list(matches)
        self.cells, self.variables, self.kept_minutes, self.is_closed = [], {}, None, False

    @property
    def name(self):
        return self.fake_name

    @property
    def state(self):
        raise SessionEnded("it is none")

    def cell(self, source, *, args=(), filename="", **where):
        self.cells.append((source, filename, *where.values()))
        return self.call

    def push(self, **values):
        self.variables |= values

    def pull(self, *names):
        missing = [name for name in names if name not in self.variables]
        if missing:
            raise NameError(f"the session has no {missing[0]!r}")
        values = tuple(self.variables[name] for name in names)
        return values[0] if len(names) == 1 else values

    def complete(self, text):
        return [name for name in self.names if name.startswith(text)]

    def keep(self, minutes):
        self.kept_minutes = minutes

    def dashboard(self):
        return types.SimpleNamespace(url="http://127.0.0.1:1/x/")

    def close(self):
        self.is_closed = True

    def __repr__(self):
        return f"<session {self.fake_name}>"
