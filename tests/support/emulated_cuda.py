"""CUDA's runtime as the streams of the GPU engine ask it, on a machine without a GPU."""

from contextlib import contextmanager

import torch


class Emulated:
    """CUDA as a script of what was asked of it; everything is done at once."""

    def __init__(self):
        self.streams, self.here, self.script = 0, None, []

    def stream(self):
        self.streams += 1
        return self.streams

    def event(self):
        return Event(self.here, self.script)

    @contextmanager
    def queued(self, stream):
        before, self.here = self.here, stream
        yield
        self.here = before

    def wait(self, event):
        self.script.append(("wait", self.here, event.stream))

    def keep(self, tensor, stream):
        self.script.append(("keep", stream))

    def pinned(self, size):
        return torch.empty(size, dtype=torch.uint8)


class Event:
    """A mark in the script."""

    def __init__(self, stream, script):
        self.stream, self.script = stream, script
        self.script.append(("mark", stream))

    def synchronize(self):
        self.script.append(("host waits", self.stream))
