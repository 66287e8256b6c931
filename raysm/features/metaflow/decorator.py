"""The decorator ``@raysm``: the body of a step runs as a job, and its artifacts come back.

The task of the step stays where Metaflow runs it: it sends the job, shows its log, and stores the
artifacts. The step's function is sent with the artifacts that it names.
"""

import contextlib
import functools
import inspect
import json
import os
import pickle
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from metaflow import FlowSpec, Run, UserStepDecorator, current
from metaflow.exception import METAFLOW_EXIT_DISALLOW_RETRY
from metaflow.metaflow_config import SERVICE_URL

from raysm.core import features
from raysm.core.client.job.description import Status
from raysm.core.client.job.handle import Job, attach
from raysm.core.client.job.numbered import NumberedJobs, task_name
from raysm.core.client.options import SubmitOptions, check_names, default_of
from raysm.core.client.service import Service, connect
from raysm.core.client.source.function import pickled_value
from raysm.core.client.submit import prepare
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest, JobStopped, ServiceError
from raysm.features.metaflow.cluster.step import Returned, Sent, StepName, run_step

FOREACH = ("input", "index")


class RaysmDecorator(UserStepDecorator):  # type: ignore[misc]  # mypy does not read Metaflow
    """Run the body of a step as a job on a Ray cluster.

    Its arguments are ``on`` and the options of ``raysm.submit``.
    """

    def init(self, **options: Any) -> None:
        check_names(options)
        self._on = options.pop("on", None)
        for name in options.keys() - SubmitOptions.__annotations__.keys():
            raise InvalidRequest(
                f"@raysm takes no {name}: an attempt finds the job of the one before it by its "
                "name in one region",
                remedy="metaflow's resume skips the steps that are done; drop it",
            )
        self._options = options

    def pre_step(self, step_name: str, flow: Any, inputs: Any = None) -> Callable[..., None]:
        return self._run

    def _run(self, flow: Any, inputs: Any = None) -> None:
        service = connect(self._on)
        jobs = self._jobs()
        number, job = jobs.last(service)
        if job is not None and job.status is Status.STOPPING:
            job.wait()
        if job is not None and job.done() and job.status is not Status.COMPLETED:
            job = None
        name = jobs.name(number + 1) if job is None else job.name
        with self._watched(name):
            try:
                job = job or self._send(name, flow, inputs, service)
                job.logs(follow=True)
                error = job.exception()
            except JobStopped as stopped:
                # The user who stopped it does not want a retry to send it again.
                print(stopped, file=sys.stderr, flush=True)  # noqa: T201
                sys.exit(METAFLOW_EXIT_DISALLOW_RETRY)
            except BaseException:  # Ctrl-C, @timeout, a flow that is gone
                # By its name, since it may exist although sending it was interrupted.
                with contextlib.suppress(ServiceError):
                    attach(name, service).cancel()
                raise
        if error is not None:
            raise error
        _apply(job.result(), flow, inputs)

    @contextlib.contextmanager
    def _watched(self, job: str) -> Iterator[None]:
        """Let SIGTERM raise, and another process stop the job if this one is killed."""

        def end(number: int, frame: object) -> None:
            sys.exit(128 + number)

        before = signal.signal(signal.SIGTERM, end)
        target = json.dumps(to_json(self._on))
        watch = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.watch", job, target, str(os.getppid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal does not reach it
        )
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
            watch.kill()
            watch.communicate()

    def _jobs(self) -> NumberedJobs:
        """Return the jobs of this task."""
        project = self._options.get("project", default_of("project"))
        run = Run(f"{current.flow_name}/{current.run_id}", _namespace_check=False)
        return NumberedJobs(
            task=self._task_name(),
            run=run.created_at,
            identity=[SERVICE_URL, project, current.pathspec],
        )

    def _task_name(self) -> str:
        name = task_name(f"{current.flow_name}-{current.step_name}")
        return str(self._options.get("name", name))

    def _send(self, name: str, flow: Any, inputs: Any, service: Service) -> Job:
        call = _call_of(self._my_step)
        sent: list[Any] = [_sent(call, flow)]
        if inputs is not None:
            sent.append([_sent(call, each) for each in inputs])
        wrap = features.view("wrap_function")
        options = {"name": self._task_name(), **self._options}
        prepared = prepare(wrap(call, *sent), on=service, job_name=name, **options)
        return prepared.send(leaves_payload=True)


def _plain(function: Any) -> Any:
    """Return a function without its attributes, in which Metaflow keeps what is not sent."""
    code, name, defaults = function.__code__, function.__name__, function.__defaults__
    plain = types.FunctionType(code, function.__globals__, name, defaults, function.__closure__)
    plain.__kwdefaults__ = function.__kwdefaults__
    plain.__module__ = function.__module__
    plain.__qualname__ = function.__qualname__
    return plain


def _call_of(step: Any) -> Callable[..., Returned]:
    """Return what runs in the job; for raysm, which sends the modules beside it, it is the step."""
    plain = _plain(step)

    @functools.wraps(plain)
    def call(sent: Sent, inputs: list[Sent] | None = None) -> Returned:
        return run_step(plain, sent, inputs)

    return call


def _sent(call: Callable[..., Any], flow: Any) -> Sent:
    """Return what a step's code names of a flow, with the methods that it calls."""
    artifacts: dict[str, bytes] = {}
    functions: dict[str, Any] = {}
    steps: list[str] = []
    names = list(_names_in(inspect.unwrap(call)))
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen or (hasattr(FlowSpec, name) and name not in FOREACH):
            continue
        seen.add(name)
        value = getattr(flow, name, None)
        if hasattr(value, "is_step"):
            steps.append(name)
        elif inspect.ismethod(value) and value.__self__ is flow:
            functions[name] = _plain(value.__func__)
            names += _names_in(value.__func__)
        elif hasattr(flow, name):
            artifacts[name] = pickled_value(value, f"the artifact {name!r}")
    return Sent(
        step=flow._current_step,
        artifacts=artifacts,
        fixed=FOREACH,
        functions=functions,
        steps=tuple(steps),
    )


def _names_in(function: Any) -> Iterator[str]:
    """Yield the names in a function's code, and in that of functions of its module it calls."""
    codes = [function.__code__]
    seen = set()
    while codes:
        code = codes.pop()
        if code in seen:
            continue
        seen.add(code)
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                codes.append(constant)
            elif isinstance(constant, str):  # getattr(self, "name")
                yield constant
        called = (function.__globals__.get(name) for name in code.co_names)
        codes += [
            each.__code__
            for each in called
            if inspect.isfunction(each) and each.__module__ == function.__module__
        ]


def _apply(returned: Returned, flow: Any, inputs: Any) -> None:
    for name, content in returned.artifacts.items():
        setattr(flow, name, pickle.loads(content))
    if returned.merged is not None:
        flow.merge_artifacts(inputs, **returned.merged)

    def step_of(target: Any) -> Any:
        if isinstance(target, StepName):
            return getattr(flow, target.step)
        # The steps of a condition, by its values.
        return {value: step_of(each) for value, each in target.items()}

    if returned.next_args is not None:
        flow.next(*map(step_of, returned.next_args), **returned.next_kwargs)
