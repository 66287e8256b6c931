"""A session's job whose server is wherever a test says; what stands here imports the client's half alone."""

import contextlib
import types
from pathlib import Path

from raysm.core.client.job.description import Status
from raysm.core.protocol.events import State, line, parse
from raysm.errors import JobFailed, NotDone
from raysm.features.session.client.handle import Session
from raysm.features.session.protocol import SERVING

TOKEN = "t" * 64


class StubService:
    """The service of a StubJob: it takes files of this machine, unless a test says otherwise."""

    def __init__(self, folder, takes_files=True):
        self.folder = folder
        self.target = types.SimpleNamespace(
            takes_files=takes_files, is_billed=False, describe=lambda: "on this machine"
        )
        self.places = types.SimpleNamespace(root=f"s3://bucket/{folder.name}")


class StubJob:
    """A session's job, whose server is in this process."""

    def __init__(self, folder, port, *, lines=(), takes_files=True):
        self.name, self.tags, self.port = "digits-20261122-120000-abcd1234", {}, port
        self.service = StubService(folder, takes_files)
        self.said = [line(State(name="formed")), *lines]
        self.reason, self.tunnels, self.is_cancelled, self.leads_to, self.waits = (
            None,
            [],
            False,
            None,
            [],
        )
        (folder / "token").write_text(f"{TOKEN}\n")
        self.answer = {
            "InputDataConfig": [
                {
                    "ChannelName": "raysm",
                    "DataSource": {"S3DataSource": {"S3Uri": f"{folder.as_uri()}/"}},
                }
            ]
        }

    def lines(self, *, follow=False):
        serving = line(State(name=SERVING, host="algo-1", address=f"http://127.0.0.1:{self.port}"))
        for text in [*self.said, *([serving] if self.port else [])]:
            yield types.SimpleNamespace(host="algo-1", text=text)

    def events(self):
        return (parse(text) for text in self.said)

    @contextlib.contextmanager
    def tunnel(self, port, on=None):
        self.tunnels.append((port, on))
        end = self.leads_to or port
        yield types.SimpleNamespace(address=f"127.0.0.1:{end}", port=end)
        self.tunnels.remove((port, on))

    def describe(self):
        return types.SimpleNamespace(
            answer=self.answer,
            status=Status.FAILED,
            reason=self.reason or "",
            used_budget_usd=None,
        )

    def done(self):
        return self.reason is not None

    def exception(self):
        return JobFailed(self.reason) if self.reason else None

    def cancel(self):
        self.is_cancelled = True

    def wait(self, timeout=None):
        self.waits.append(timeout)
        raise NotDone("it goes on")


def near(folder, port, name="digits"):
    """Return an open session at ``port``."""
    session = Session(name=name)
    session._connect(StubJob(Path(folder), port), lambda event: None)
    return session
