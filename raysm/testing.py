"""A fake SageMaker for tests of code that submits jobs.

It has no server, no instance and no Ray, and tests wait for nothing.

    fake = raysm.testing.FakeSageMaker(tmp_path)
    job = raysm.submit(raysm.Function(work, 3), on=fake)     # called at once, in this process
    assert job.result() == 9
    fake.answer("script", raysm.testing.Answer(files={"model.txt": b"…"}, lines=["epoch 1"]))
    fake.answer("script", raysm.testing.Answer(status="Failed", reason="ValueError: no such layer"))

Jobs go through the whole client (request, plan, limits, payload) and end as soon as they are sent.
Functions are called. Other workloads end by the answers for their kind, in order; without one they
complete and leave nothing. ``fake.submitted`` has the plans.
"""

import io
import pickle
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from traceback import format_exception
from typing import Any, Literal

from raysm.core.client.plan import Plan
from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import file_path
from raysm.core.client.targets.connection import Polling
from raysm.core.protocol import payload
from raysm.core.protocol.file_uri import uri_of
from raysm.core.protocol.home import Clock
from raysm.core.protocol.job_api import TRAINING, JobApi
from raysm.core.protocol.names import WORKLOAD_TAG
from raysm.core.protocol.result import EXCEPTION, FAILURE, VALUE, Failure
from raysm.core.protocol.store import put
from raysm.core.request import Local, Target, Workload
from raysm.errors import JobNotFound, ServiceError

__all__ = ["Answer", "FakeSageMaker"]

WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)
SPEED = 100.0
"""Seconds of the fake's clock in one second: a grid polls its jobs every ten, and all have ended by
then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """How a job ends."""

    status: Literal["Completed", "Failed", "Stopped"] = "Completed"
    """TrainingJobStatus."""
    reason: str = ""
    """FailureReason of a Failed job."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Its files in ``/opt/ml/model``, by name."""
    lines: Sequence[str] = ()
    """The log of ``algo-1``."""


class FakeSageMaker(Service):
    """A target for ``raysm.submit`` and ``raysm.attach``, as ``on``.

    Attributes:
        submitted: The plans of all jobs, as they were sent.
    """

    def __init__(self, home: Path) -> None:
        """Keep the outputs of jobs below ``home``, a folder of the test."""
        super().__init__(
            Local(home=str(home)),
            clients=lambda name: _Clients(self, name),
            # Every job has ended: the usual pauses would only make tests slow.
            polling=Polling(first_s=0.001, most_s=0.01),
        )
        self._clock = Clock(speed=SPEED, begun_s=time.time())
        self.submitted: list[Plan] = []
        self.objects: dict[tuple[str, str], bytes] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.lines: dict[str, Sequence[str]] = {}
        self._answers: dict[str, deque[Answer]] = defaultdict(deque)

    def answer(self, kind: str | type[Workload], answer: Answer) -> None:
        """Let the next job of this kind of workload end with ``answer``.

        Args:
            kind: ``script``, ``function``, ``similarity``, or the class of your own kind.
            answer: How it ends.

        Raises:
            InvalidRequest: There is no such kind.
        """
        self._answers[Workload.named(getattr(kind, "kind", kind)).kind].append(answer)

    @property
    def clock(self) -> Clock:
        return self._clock

    def at(self, target: Target) -> Service:
        """Return itself, which is every region, so that a whole grid is one test."""
        return self

    def create(self, plan: Plan) -> str:
        self.submitted.append(plan)
        tags = {tag["Key"]: tag["Value"] for tag in plan.request.get("Tags", ())}
        kind = tags.get(WORKLOAD_TAG, "")
        outputs = file_path(plan.outputs)
        answer = self._answers[kind].popleft() if self._answers[kind] else None
        if answer is None:
            function = self._function(plan) if kind and Workload.named(kind).returns_value else None
            answer = Answer() if function is None else self._called(function, outputs)
        for name, content in answer.files.items():
            put(outputs / "model" / name, content)
        self.lines[plan.name] = tuple(answer.lines)
        self.jobs[plan.name] = self._description(plan, answer, outputs)
        return str(self.jobs[plan.name][plan.api.arn_key])

    def _function(self, plan: Plan) -> bytes | None:
        keys = (
            key
            for key in self.objects
            if f"/{plan.name}/" in key[1] and key[1].endswith(payload.FUNCTION)
        )
        return next((self.objects[key] for key in keys), None)

    def _called(self, pickled: bytes, outputs: Path) -> Answer:
        """Call the function here, and keep its value or exception as a job does."""
        import cloudpickle

        # The client has just pickled it, in this very process.
        function, args, kwargs = pickle.loads(pickled)
        try:
            value = function(*args, **kwargs)
        except Exception as error:
            trace = "".join(format_exception(type(error), error, error.__traceback__))
            failure = Failure(
                error_type=type(error).__name__, message=str(error), remote_traceback=trace
            )
            failure.write(outputs / "data" / FAILURE)
            put(outputs / "data" / EXCEPTION, cloudpickle.dumps(error.with_traceback(None)))
            return Answer(status="Failed", reason=failure.reason())
        return Answer(files={VALUE: cloudpickle.dumps(value)})

    def _description(self, plan: Plan, answer: Answer, outputs: Path) -> dict[str, Any]:
        now = datetime.now(UTC)
        api = plan.api
        # Describe's answer has no tags.
        description = {key: value for key, value in plan.request.items() if key != "Tags"} | {
            api.arn_key: api.arn(region="us-east-1", account="123456789012", name=plan.name),
            api.status_key: answer.status,
            "CreationTime": now,
            api.end_time_key: now,
        }
        if answer.reason:
            description["FailureReason"] = answer.reason
        if api.has_secondary_status:
            description["SecondaryStatus"] = answer.status
            # A test may give its home as a relative path, which has no URI.
            description["ModelArtifacts"] = {"S3ModelArtifacts": uri_of(outputs / "model")}
        return description

    def describe(self, api: JobApi, name: str) -> dict[str, Any]:
        # The client looks for a name in each API.
        if name not in self.jobs or api.arn_key not in self.jobs[name]:
            raise JobNotFound(f"there is no such job: {name}")
        return dict(self.jobs[name])

    def summaries(
        self,
        api: JobApi,
        *,
        contains: str | None = None,
        sent: tuple[datetime | None, datetime | None] = (None, None),
        limit: int,
    ) -> Iterator[dict[str, Any]]:
        """Yield the descriptions of the latest jobs, which have more than List's entries."""
        after, before = sent
        found = [
            job
            for job in reversed(self.jobs.values())
            if api.arn_key in job
            and (contains or "") in job[api.name_key]
            and (after is None or job["CreationTime"] >= after)
            and (before is None or job["CreationTime"] <= before)
        ]
        yield from found[:limit]

    def stop(self, api: JobApi, name: str) -> None:
        """Do nothing: every job has ended."""

    def tags(self, arn: str) -> dict[str, str]:
        plan = next(plan for plan in self.submitted if arn.endswith(f"/{plan.name}"))
        return {tag["Key"]: tag["Value"] for tag in plan.request.get("Tags", ())}


class _Clients:
    """The operations of S3 and CloudWatch Logs that the client uses, in memory."""

    def __init__(self, fake: FakeSageMaker, name: str) -> None:
        self._fake = fake
        self._name = name

    def head_bucket(self, **_: Any) -> dict[str, Any]:
        # Every bucket exists, so the client creates none.
        return {}

    def list_training_jobs(self, *, NameContains: str, MaxResults: int, **_: Any) -> dict[str, Any]:  # noqa: N803
        return {
            "TrainingJobSummaries": list(
                self._fake.summaries(TRAINING, contains=NameContains, limit=MaxResults)
            )
        }

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, **_: Any) -> dict[str, Any]:  # noqa: N803
        self._fake.objects[Bucket, Key] = bytes(Body)
        return {}

    def upload_file(self, path: str, bucket: str, key: str, **_: Any) -> None:
        # Read now, because the client deletes the payload's folder after the upload.
        self._fake.objects[bucket, key] = Path(path).read_bytes()

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        if (Bucket, Key) not in self._fake.objects:
            # As in S3, the answer to HEAD has no body: its status is the code.
            raise ServiceError("head_object: Not Found", code="404")
        return {"ContentLength": len(self._fake.objects[Bucket, Key])}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        content = self._fake.objects[Bucket, Key]
        return {"Body": io.BytesIO(content), "ContentLength": len(content)}

    def list_objects_v2(self, *, Bucket: str, Prefix: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        stored = [
            (key, body) for (bucket, key), body in self._fake.objects.items() if bucket == Bucket
        ]
        return {
            "Contents": [
                {"Key": key, "Size": len(body), "ETag": '""', "LastModified": WRITTEN}
                # S3 lists keys in their order.
                for key, body in sorted(stored)
                if key.startswith(Prefix)
            ]
        }

    def delete_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        self._fake.objects.pop((Bucket, Key), None)
        return {}

    def describe_log_streams(self, *, logStreamNamePrefix: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        job = logStreamNamePrefix.rstrip("/")
        # The form of an instance's stream.
        return {
            "logStreams": [{"logStreamName": f"{job}/algo-1-1"}] if job in self._fake.lines else []
        }

    def get_log_events(self, **call: Any) -> dict[str, Any]:
        now_ms = int(time.time() * 1000)
        # CloudWatch returns the same token if a stream has no more.
        lines = (
            ()
            if call.get("nextToken")
            else self._fake.lines[call["logStreamName"].partition("/")[0]]
        )
        return {
            "events": [{"timestamp": now_ms, "message": line} for line in lines],
            "nextForwardToken": "end",
        }
