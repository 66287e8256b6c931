"""A step of a flow in its job, where there is no Metaflow: ``self`` is a stand-in."""

import pickle
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cloudpickle


class StepName(NamedTuple):
    """What ``self.train`` is where ``train`` is a step: ``self.next`` takes it."""

    step: str


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What a step needs of its flow, or of one of its inputs."""

    step: str
    artifacts: Mapping[str, bytes]
    """Pickles of artifacts, parameters and constants by name, each by itself as in Metaflow."""
    fixed: tuple[str, ...] = ()
    """Names that never come back: ``input`` and ``index``."""
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """The flow's other methods."""
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Returned:
    """What a step leaves."""

    artifacts: Mapping[str, bytes]
    """Pickles of those that are new or have changed."""
    merged: Mapping[str, Any] | None
    """The arguments of ``self.merge_artifacts``, which Metaflow carries out."""
    next_args: tuple[Any, ...] | None
    """Those of ``self.next``; None if it was not called."""
    next_kwargs: Mapping[str, Any]


@dataclass
class Calls:
    """What a stand-in got, and was asked for."""

    sent: Sent
    merged: Mapping[str, Any] | None = None
    next_args: tuple[Any, ...] | None = None
    next_kwargs: Mapping[str, Any] = field(default_factory=dict)


CALLS = "_raysm_calls"
"""The attribute of a stand-in that is no artifact."""


class Flow:
    """Stands in for ``self``; its attributes are the artifacts."""

    def __init__(self, sent: Sent) -> None:
        values = {name: pickle.loads(content) for name, content in sent.artifacts.items()}
        vars(self).update(values, **{CALLS: Calls(sent)})

    def __getattr__(self, name: str) -> Any:
        sent = vars(self)[CALLS].sent
        if name in sent.functions:
            return types.MethodType(sent.functions[name], self)
        if name in sent.steps:
            return StepName(name)
        raise AttributeError(
            f"the step {sent.step} has no attribute {name!r} in its job: only what the step's code "
            f"names is sent; write self.{name} in the step, or run the step without @raysm"
        )

    def next(self, *targets: Any, **options: Any) -> None:
        calls = vars(self)[CALLS]
        calls.next_args = targets
        calls.next_kwargs = options

    def merge_artifacts(self, inputs: Any, **options: Any) -> None:
        vars(self)[CALLS].merged = options


class Inputs:
    """Stands in for the inputs of a join: by number, in a loop, or by the name of a step."""

    def __init__(self, inputs: list[Sent]) -> None:
        self._flows = [Flow(sent) for sent in inputs]
        for sent, flow in zip(inputs, self._flows, strict=True):
            setattr(self, sent.step, flow)

    def __getitem__(self, index: int) -> Flow:
        return self._flows[index]

    def __iter__(self) -> Iterator[Flow]:
        return iter(self._flows)


def run_step(step: Callable[..., Any], sent: Sent, inputs: list[Sent] | None) -> Returned:
    """Call a step with stand-ins for its flow and its inputs."""
    flow = Flow(sent)
    step(flow, *(() if inputs is None else (Inputs(inputs),)))
    pickles = {
        name: cloudpickle.dumps(value)
        for name, value in vars(flow).items()
        if name not in (CALLS, *sent.fixed)
    }
    changed = {
        name: content for name, content in pickles.items() if content != sent.artifacts.get(name)
    }
    calls = vars(flow)[CALLS]
    return Returned(
        artifacts=changed,
        merged=calls.merged,
        next_args=calls.next_args,
        next_kwargs=calls.next_kwargs,
    )
