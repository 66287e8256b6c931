"""A job and its follow-up jobs, which continue it after ``max_runtime_s``."""

import logging
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.core.client.costs.cap import follow_up_limits, pays_for_follow_up
from raysm.core.client.job import records
from raysm.core.client.job.description import Description, SecondaryStatus, Status, read
from raysm.core.client.job.records import MAX_NAME
from raysm.core.client.plan import Plan
from raysm.core.client.service import Service
from raysm.core.client.storage.payload import remove_payload
from raysm.core.client.storage.s3 import Storage
from raysm.core.protocol.job_api import JobApi
from raysm.core.protocol.names import (
    FIRST_TAG,
    MAX_RESTARTS_TAG,
    PROJECT_TAG,
    RESTART_TAG,
    TASK_TAG,
)
from raysm.core.request import AWS, JobRequest, Local
from raysm.core.request.options import keys_taken_over
from raysm.errors import CredentialsExpired, JobNotFound, ServiceError

_log = logging.getLogger("raysm")

TAKEN_OVER = keys_taken_over(JobRequest, AWS, Local)
FOLLOW_UP = re.compile(r"-r\d+$")
READ_ONLY = ("SelectedInstanceType", "SelectedInstanceCount")
"""Keys of ResourceConfig that Create refuses."""


def next_name(description: Description, tags: Mapping[str, str]) -> str | None:
    # Without checkpoints a follow-up would start from the beginning, and reach its time limit too.
    if not description.exceeded_runtime or "CheckpointConfig" not in description.answer:
        return None
    if not pays_for_follow_up(description.answer):
        return None
    restart = _number(tags, RESTART_TAG) + 1
    if restart > _number(tags, MAX_RESTARTS_TAG):
        return None
    return _name_of(tags.get(FIRST_TAG, description.name), restart)


def is_follow_up(name: str) -> bool:
    return FOLLOW_UP.search(name) is not None


def names_until(name: str, tags: Mapping[str, str]) -> tuple[str, ...]:
    number = _number(tags, RESTART_TAG)
    if FIRST_TAG not in tags or number < 1:
        return (name,)
    first = tags[FIRST_TAG]
    return (first, *(_name_of(first, restart) for restart in range(1, number)), name)


def follow_up(description: Description, tags: Mapping[str, str]) -> Plan:
    name = next_name(description, tags)
    assert name is not None
    call: dict[str, Any] = {
        key: description.answer[key] for key in sorted(TAKEN_OVER) if key in description.answer
    }
    call["ResourceConfig"] = {
        key: item for key, item in call["ResourceConfig"].items() if key not in READ_ONLY
    }
    call |= follow_up_limits(description.answer)
    own_tags = {
        RESTART_TAG: str(_number(tags, RESTART_TAG) + 1),
        FIRST_TAG: tags.get(FIRST_TAG, description.name),
    }
    # AWS shows its own tags, and refuses them in a call.
    others = {key: item for key, item in tags.items() if not key.startswith("aws:")}
    all_tags = [{"Key": key, "Value": item} for key, item in {**others, **own_tags}.items()]
    return Plan(
        api=description.api, request={description.api.name_key: name, **call, "Tags": all_tags}
    )


def _name_of(first: str, restart: int) -> str:
    suffix = f"-r{restart}"
    return first[: MAX_NAME - len(suffix)].rstrip("-") + suffix


def _number(tags: Mapping[str, str], key: str) -> int:
    text = tags.get(key, "0")
    # Other users may have changed a tag.
    return int(text) if text.isdecimal() else 0


class TransientErrors:
    """Tolerates transient errors of a service that is unreachable for ``Polling.patience_s``."""

    def __init__(self, service: Service, job: str) -> None:
        self._patience_s = service.polling.patience_s
        self._job = job
        self.reset()

    def reset(self) -> None:
        self._answered_s = time.monotonic()

    def raise_unless_transient(self, error: ServiceError) -> None:
        """Raise ``error`` unless it is transient and the service answered recently; else log it."""
        if isinstance(error, CredentialsExpired):
            raise CredentialsExpired(
                f"{error}. The job goes on: follow it by raysm logs -f {self._job}, or wait: "
                f"raysm result {self._job}",
                code=error.code,
            ) from error
        if not error.is_transient or time.monotonic() - self._answered_s > self._patience_s:
            raise error
        _log.warning("the job %s cannot be watched just now: %s", self._job, error)


class Chain:
    """One job and its follow-ups; may be used from any thread.

    If this process stopped the job (``is_cancelled``), it gets no follow-up.
    """

    def __init__(
        self,
        name: str,
        *,
        service: Service,
        api: JobApi,
        description: Description | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.service = service
        self.api = api
        self.is_cancelled = False
        self._is_replaced = False
        self._is_cleared = False
        self._names = names_until(name, tags or {})
        self._last = description
        self._ended: dict[str, Description | None] = {}
        self._tags = None if tags is None else dict(tags)
        self._lock = threading.RLock()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._names)

    @property
    def first(self) -> str:
        return self._names[0]

    @property
    def name(self) -> str:
        return self._names[-1]

    @property
    def tags(self) -> dict[str, str]:
        if self._tags is None:
            self._tags = self.service.tags(self.known().arn)
        return dict(self._tags)

    def describe(self) -> Description:
        with self._lock:
            if self._last is None or not self._last.status.is_terminal:
                self._last = read(self.api, self.service.describe(self.api, self.name))
            return self._last

    def known(self) -> Description:
        return self._last or self.describe()

    def last_known(self) -> Description | None:
        return self._last

    def descriptions(self) -> list[Description]:
        *before, last = self.names
        # If another thread has just switched to a follow-up, describe() describes that one: the
        # next call returns both.
        return [*self._of_ended(before), *([self.describe()] if last == self.name else [])]

    def earlier(self) -> list[Description]:
        """Return the descriptions of all jobs before the last; each is asked for once."""
        return self._of_ended(self.names[:-1])

    def _of_ended(self, names: Sequence[str]) -> list[Description]:
        for name in names:
            if name not in self._ended:
                try:
                    self._ended[name] = read(self.api, self.service.describe(self.api, name))
                except JobNotFound:
                    self._ended[name] = None
        return [ended for name in names if (ended := self._ended[name]) is not None]

    def is_stopped(self, description: Description) -> bool:
        is_by_service = (
            description.reached_limit or description.secondary is SecondaryStatus.MAX_WAIT_EXCEEDED
        )
        return description.status is Status.STOPPED and (self.is_cancelled or not is_by_service)

    def ended(self, *, send: bool) -> bool:
        """Return True if the chain is over; else switch to the follow-up job.

        With ``send``, create the follow-up job if it is missing.

        The client deletes the payload of a chain that is over: the instances of a job have no
        permission to delete what a follow-up may need.
        """
        is_over = self._has_ended(send)
        if is_over and not self._is_cleared:
            self._is_cleared = True
            remove_payload(self.known().answer, self.first, self.service)
        return is_over

    def _has_ended(self, send: bool) -> bool:
        while True:
            description = self.describe()
            if not description.status.is_terminal:
                return False
            following = next_name(description, self.tags) if description.exceeded_runtime else None
            if following is None:
                return True
            if not self._switch_to(following, description, send and not self.is_cancelled):
                return self.is_cancelled or self._has_successor(description)

    def _has_successor(self, ended: Description) -> bool:
        """Return True if a job outside the chain continues the state of the one that ended.

        The chain is over then.

        Checked before a follow-up is sent: two jobs with one state would overwrite each other's
        checkpoints.
        """
        tags = self.tags
        state = ended.answer["CheckpointConfig"]["S3Uri"]
        if self._is_replaced or PROJECT_TAG not in tags or TASK_TAG not in tags:
            return self._is_replaced
        prefix = self.service.places.records(tags[PROJECT_TAG], tags[TASK_TAG])
        try:
            latest = records.latest_of_state(prefix, Storage(self.service), state)
        except ServiceError as error:
            if error.is_transient:
                raise
            return False  # a user who may not read the records may still send follow-ups
        if latest is not None and latest.job != tags.get(FIRST_TAG, self.first):
            self._is_replaced = True
            _log.warning(
                "the job %s has no follow-up: %s continues with its state", ended.name, latest.job
            )
        return self._is_replaced

    def _switch_to(self, following: str, ended: Description, send: bool) -> bool:
        try:
            description = read(self.api, self.service.describe(self.api, following))
        except JobNotFound:
            if not send or self._has_successor(ended):
                return False
            try:
                self.service.create(follow_up(ended, self.tags))
                _log.info(
                    "the job %s reached its time limit; %s continues it", ended.name, following
                )
            except ServiceError as error:
                if error.code != "ResourceInUse":  # another process that watches it was quicker
                    raise
            try:
                description = read(self.api, self.service.describe(self.api, following))
            except JobNotFound:
                return False
        with self._lock:
            if self.name == ended.name:  # otherwise another thread has switched already
                self._ended[ended.name] = ended
                self._last = description
                self._tags = None
                self._names = (*self._names, following)
        if self.is_cancelled and not description.status.is_terminal:
            try:
                self.service.stop(self.api, following)  # another process sent it meanwhile
            except ServiceError as error:  # it may have just ended
                _log.warning(
                    "the job %s went on after it was cancelled, and cannot be stopped: %s",
                    following,
                    error,
                )
        return True

    def late_s(self) -> float:
        """Return the seconds for which log lines may still arrive; 0 if the job ended long ago."""
        ended = self.known().ended
        late_s = self.service.polling.late_s
        # The service's clock may be ahead of this one.
        return (
            late_s
            if ended is None
            else max(0.0, late_s - max(0.0, time.time() - ended.timestamp()))
        )
