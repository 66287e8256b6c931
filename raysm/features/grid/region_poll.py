"""Look at a grid's jobs in a region, again and again.

A poll reads List page by page, and calls Describe for jobs that have changed. List shows which jobs
exist, but may lack a new job for a while; only Describe shows a job's details. If a poll is killed,
the next one reads everything again.
"""

import functools
import itertools
from collections.abc import Mapping
from typing import Any

from raysm.core.client.job.description import NEVER_RAN, Description
from raysm.errors import JobNotFound
from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.attempt_end import (
    end_finished,
    end_orphan,
    interrupted,
    interruptions_text,
    start_times,
)
from raysm.features.grid.capacity import record_answer, record_start
from raysm.features.grid.endings import ENDINGS, EndingName, Verdict, classify_end
from raysm.features.grid.rates import keep_last_rate
from raysm.features.grid.region import Listed, Page, RegionApi, RegionUnavailable
from raysm.features.grid.retry_policy import GONE_S
from raysm.features.grid.store.attempts import ENDED
from raysm.features.grid.store.store import Store

PAUSE_S = 10.0
"""Seconds from the start of a poll to the start of the next."""

MARGIN_S = 300.0
"""Assumed largest difference between the service's clock and ours: List is read this much further
back. Not more, since each page costs a call; a job that a larger difference hides is described by
its name."""

PATIENCE = 6
"""Pauses after which a poll starts even if the last one's changes are not described yet, since an
orphaned job costs money until it is found."""

LOOKS = 20
"""Jobs that are described per transaction: one transaction per job takes longer than all else, and
more jobs delay the lease on a slow network."""

UNLISTED_S = 60.0
"""Seconds after which a sent job that is missing in List is described by its name."""


class RegionPoll:
    """The polls of one region; a step may do a part of one."""

    def __init__(
        self, region: str, store: Store, api: RegionApi, *, pause_s: float = PAUSE_S
    ) -> None:
        self.region = region
        self._store = store
        self._api = api
        self._pause_s = pause_s
        self._due_s = float("-inf")
        self._token: str | None = None
        self._in_progress = False
        self._rests_until_s = float("-inf")
        # For the region's open jobs: ``Attempt.seen``, and ``sent_s`` of those that this poll has
        # not found yet.
        self._seen: dict[str, str] = {}
        self._unlisted: dict[str, float] = {}
        # List shows ended jobs in every poll; looking each one up again took half of a step.
        self._ended: set[str] = set()
        self._is_thorough = True
        self._polls_begun = 0
        # Start of this poll, and of the last one that read List to its end.
        self._begun_s = self._whole_s = float("-inf")
        # Jobs to describe with their new ``Listed.seen``, in the order in which they changed.
        self._changed: dict[str, str] = {}

    @functools.cached_property
    def _prefix(self) -> str:
        return self._store.grid().prefix

    @property
    def describes(self) -> bool:
        """Whether only calls of Describe are left in this poll."""
        return bool(self._changed) and not self._in_progress

    def due_s(self, now: float) -> float | None:
        """Return when the poll has work to do; None until a job is sent."""
        if self._changed or self._in_progress:
            return max(now, self._rests_until_s)
        return self._due_s if self._store.orphans.oldest_s(self.region, now) is not None else None

    def waiting(self, longer_s: float, now: float) -> list[Attempt]:
        """Return the attempts that have waited for their instances for longer than ``longer_s``.

        Only a complete poll counts: instances may have started while a laptop slept or the region
        did not answer.
        """
        late = self._store.attempts.pending_since(self.region, min(now, self._whole_s) - longer_s)
        return [attempt for attempt in late if attempt.name not in self._changed]

    def rest(self, now: float) -> None:
        """Pause for a region that does not answer; then the poll starts again."""
        self._in_progress = False
        self._due_s = now + self._pause_s
        self._rests_until_s = now + self._pause_s

    def step(self, now: float) -> None:
        if now < self._rests_until_s <= now + self._pause_s:
            return
        if (
            not self._in_progress
            and self._is_due(now)
            and self._store.orphans.oldest_s(self.region, now) is not None
        ):
            self._begin(now)
        while self._in_progress and self._read_page(now):
            pass
        while self._changed and self._look_at(list(itertools.islice(self._changed, LOOKS)), now):
            pass

    def _is_due(self, now: float) -> bool:
        # The second condition is for a clock that was set back.
        if not (now >= self._due_s or self._due_s > now + self._pause_s):
            return False
        # No poll while many jobs wait for Describe: with 100,000 rows, a third of the time went
        # into such pages.
        wait_s = self._api.limiter.wait_s(self.region, "describe", now, len(self._changed))
        return wait_s <= self._pause_s or now >= self._due_s + (PATIENCE - 1) * self._pause_s

    def _begin(self, now: float) -> None:
        self._in_progress = True
        self._token = None
        self._due_s = now + self._pause_s
        self._begun_s = now
        attempts = self._store.attempts.seen_and_sent_times(self.region)
        self._seen = {name: seen for name, (seen, _) in attempts.items()}
        self._unlisted = {name: sent_s for name, (_, sent_s) in attempts.items()}
        self._unlisted |= self._store.orphans.open(self.region)
        # If an orphaned job may exist, List is read on by MARGIN_S, since it may be older than all
        # open jobs. Otherwise reading stops with the last open job, which saves a page for jobs of
        # three minutes.
        is_first = self._polls_begun == 0
        self._is_thorough = is_first or self._store.orphans.may_exist_in(self.region, now)
        self._polls_begun += 1

    def _read_page(self, now: float) -> bool:
        """Read one page of List; return False if the token bucket is empty."""
        prefix = self._prefix
        token = self._token
        since = self._store.orphans.oldest_s(self.region, now)
        try:
            page: Page = self._api.call(
                self.region, "list", now, lambda region: region.page(prefix, token)
            )
        except RegionUnavailable as error:
            if error.reason:
                raise
            return False
        with self._store.database.transaction("page"):
            record_answer(self._store, self.region)
            # NameContains matches anywhere in a name. Jobs that have not changed, or already wait
            # for Describe, are not looked up again; there may be thousands.
            own = [
                each
                for each in page.jobs
                if each.name.startswith(prefix) and each.name not in self._ended
            ]
            known = [(self._seen.get(each.name), self._changed.get(each.name)) for each in own]
            changed = [each for each, seen in zip(own, known, strict=True) if each.seen not in seen]
            states = (
                self._store.attempts.seen_of([listed.name for listed in changed]) if changed else {}
            )
            for listed in changed:
                self._compare(listed, states.get(listed.name), now)
        for listed in page.jobs:
            self._unlisted.pop(listed.name, None)
        self._token = page.token
        if self._is_last(page, since):
            self._in_progress = False
            self._whole_s = self._begun_s
            for name, sent_s in self._unlisted.items():
                if now - sent_s > UNLISTED_S:
                    self._changed.setdefault(name, self._seen.get(name, ""))
        return True

    def _is_last(self, page: Page, since: float | None) -> bool:
        if page.token is None or not (self._is_thorough or self._unlisted):
            return True
        oldest = min((listed.created_s for listed in page.jobs), default=None)
        return oldest is not None and since is not None and oldest < since - MARGIN_S

    def _compare(self, listed: Listed, state: str | None, now: float) -> None:
        if state == ENDED:
            self._ended.add(listed.name)
        elif state is not None:
            if state != listed.seen:
                self._changed[listed.name] = listed.seen
        else:
            # The job has no open attempt: its Create was carried out late, or its store was lost.
            row = self._store.orphans.find(listed.name)
            if row is None:
                self._store.add_orphan(
                    listed.name, self.region, self._store.attempts.find(listed.name), now
                )
            if (row is None or row["ended_s"] is None) and listed.status.is_terminal:
                self._changed[listed.name] = listed.seen

    def _look_at(self, names: list[str], now: float) -> bool:
        """Describe as many of these jobs as the token bucket allows, and store the answers.

        Returns:
            False if it allows none.
        """
        calls = self._api.limiter.take(self.region, "describe", now, len(names))
        if not calls:
            return False
        answers: dict[str, Description | JobNotFound] = {}
        attempts = self._store.attempts.named(names[:calls])
        try:
            for name in names[:calls]:
                answers[name] = self._describe(name, now)
        except RegionUnavailable:
            self._api.limiter.give_back(self.region, "describe", calls - len(answers) - 1, now)
            if answers:
                self._store_descriptions(answers, attempts, now)
            raise
        self._store_descriptions(answers, attempts, now)
        return True

    def _describe(self, name: str, now: float) -> Description | JobNotFound:
        try:
            return self._api.call_with_token(
                self.region, "describe", now, lambda region: region.describe(name)
            )
        except JobNotFound as error:
            return error

    def _store_descriptions(
        self,
        answers: Mapping[str, Description | JobNotFound],
        attempts: Mapping[str, Attempt],
        now: float,
    ) -> None:
        # The attempts, read before the calls, are unchanged: the fence shows that no other process
        # wrote.
        with self._store.database.transaction("described"):
            record_answer(self._store, self.region)
            for name, answer in answers.items():
                attempt = attempts.get(name)
                if attempt is None or attempt.state is AttemptState.ENDED:
                    if attempt is None or attempt.sent_s is None:
                        self._end_orphan(name, answer, now)
                elif not isinstance(answer, JobNotFound):
                    record_description(self._store, attempt, answer, self._changed[name], now)
                    if answer.status.is_terminal:
                        keep_last_rate(self._store, name, answer, now)
                # List and Describe may lag behind Create.
                elif attempt.sent_s is not None and now - attempt.sent_s >= GONE_S:
                    reason = (
                        "the service no longer knows the job, which is counted as if it ran to its "
                        f"limit: {answer}"
                    )
                    end_finished(
                        self._store,
                        attempt,
                        Verdict(ending=ENDINGS[EndingName.UNKNOWN], reason=reason),
                        None,
                        now,
                    )
        for name in answers:
            # The value from the start of the poll is outdated.
            self._seen.pop(name, None)
            del self._changed[name]

    def _end_orphan(self, name: str, answer: Description | JobNotFound, now: float) -> None:
        if not isinstance(answer, JobNotFound):
            end_orphan(self._store, name, answer, now)
            return
        row = self._store.orphans.find(name)
        if row is not None and now - row["seen_s"] >= GONE_S:
            end_orphan(self._store, name, None, now)


def record_description(
    store: Store, attempt: Attempt, description: Description, noticed: str, now: float
) -> None:
    """Update an open attempt with what Describe says, within a transaction."""
    verdict = classify_end(description, attempt.stop_reason)
    if verdict is not None:
        end_finished(store, attempt, verdict, description, now)
        return
    state = AttemptState.PENDING if description.secondary in NEVER_RAN else AttemptState.RUNNING
    changes: dict[str, Any] = {"state": state, "seen": noticed}
    if attempt.sent_s is None:
        changes["sent_s"] = now
    changes |= start_times(description)
    changes |= attempt.settled(description.selected_type) | interrupted(description)
    moved = store.attempts.move(attempt, now, **changes)
    if moved.interruptions > attempt.interruptions:
        store.rows.explain(moved.row_key, interruptions_text(moved), now)
    if moved.started_s is not None and attempt.started_s is None:
        # Record this at the job's start: at its end, hours later, the place may be in a backoff of
        # a later refusal.
        record_start(store, moved)
