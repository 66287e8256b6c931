"""Kinds of workload as users write them: one module, which imports nothing of theirs."""

import json
import os
import pickle
import time
from dataclasses import dataclass, field
from typing import ClassVar

from raysm.core.client.units import PYTHON_VERSION
from raysm.core.protocol.names import LABEL_HOST
from raysm.core.request import Workload
from raysm.core.request.options import decides
from raysm.instance import environment
from raysm.instance.work.runner import Runner

HOSTS = ("algo-1", "algo-2")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally(Workload):
    """How often each instance finds a word in its share of the texts."""

    runner: ClassVar[str] = f"{__name__}:TallyRunner"
    label: ClassVar[str] = "the tally"
    channels: ClassVar[tuple[str, ...]] = ("texts",)
    ray_variables: ClassVar[dict[str, str]] = {"TALLY_UNIT": "words"}
    keeps_state: ClassVar[bool] = False

    word: str = field(kw_only=False)
    """What is counted."""
    remark: str = field(default="", metadata=decides(result=False))
    """For people."""


class TallyRunner(Runner[Tally]):
    def run(self, address):
        import ray

        begun_s = time.monotonic()
        ray.init(address=address, log_to_driver=False)
        count = ray.remote(num_cpus=0)(occurrences)
        counts = [
            count.options(label_selector={LABEL_HOST: host}).remote(self.workload.word)
            for host in HOSTS
        ]
        found = dict(zip(HOSTS, ray.get(counts), strict=True))
        ray.shutdown()
        (self.environment.paths.model / "tally.json").write_text(json.dumps(found))
        self.describe_result(
            {"tally": time.monotonic() - begun_s}, summary=f"{len(found)} instances counted"
        )


def occurrences(word):
    """Run on an instance, which imports this module as it travelled."""
    folder = environment.read().paths.channel("texts")
    texts = [path.read_text() for path in sorted(folder.rglob("*.txt"))]
    return [sum(text.split().count(word) for text in texts), os.environ["TALLY_UNIT"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Greeting(Workload):
    """What a pickled function returns; made by ``Greet``."""

    runner: ClassVar[str] = f"{__name__}:NoRunner"
    returns_value: ClassVar[bool] = True

    @property
    def pickled_by(self):
        return PYTHON_VERSION


class Greet:
    """What is submitted instead."""

    def __init__(self, fn):
        self.fn = fn

    def workload(self):
        return Greeting()

    def pickled(self):
        return pickle.dumps((self.fn, ("world",), {}))

    def source(self):
        return None

    def title(self):
        return "greet"


def hello(whom):
    if whom != "world":
        raise ValueError(whom)
    return f"hello {whom}"


def refuse(whom):
    raise LookupError(whom)
