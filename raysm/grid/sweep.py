"""One look at all jobs of a grid in a region: List, page by page, then Describe of what has changed.

List tells which jobs there are, Describe alone what becomes of one: after Create, List may lack a job for a while. What
was learned of a sweep that a crash ends is learned again by the next.
"""

import contextlib
import itertools
from typing import Any, NamedTuple

from raysm.client.job.description import Description, SecondaryStatus
from raysm.errors import JobNotFound
from raysm.grid.attempt import Attempt, AttemptState
from raysm.grid.capacity import record_answer, record_start
from raysm.grid.conclusion import conclude, end_stray, interrupted, note_stray, tell_interruptions
from raysm.grid.endings import ENDINGS, Verdict, classify_end
from raysm.grid.gauge import keep_last
from raysm.grid.outside import Outside, Silence
from raysm.grid.region import Listed, Page
from raysm.grid.store import ENDED, Store

__all__ = ["Sweep"]

PAUSE_S = 10.0
"""Seconds from the beginning of a sweep to that of the next."""

GONE_S = 900.0
"""Seconds after which a job that the service took, and says it does not know, is taken for one that is gone."""

MARGIN_S = 300.0
"""Seconds by which the service's clock and ours may differ: so much further back List is read. Each page costs a call
of a rate that is not adjustable, and a job that a greater difference hides is asked for by its name."""

PATIENCE = 6
"""Pauses after which a sweep begins although the last one's changes are not described yet: a job that nobody waits for
costs until it is found."""

LOOKS = 20
"""Jobs that are described before what they say is kept: a transaction each takes longer than all else about them, and
with more of them the lease would have to wait for a slow network."""

UNLISTED_S = 60.0
"""Seconds for which a job that was sent may be missing in List without being asked for by its name."""

WAITING = (SecondaryStatus.STARTING, SecondaryStatus.PENDING, SecondaryStatus.LAUNCHING, SecondaryStatus.PREPARING)


class Sweep:
    """The sweeps of one region, one after the other; a step may do a part of one."""

    def __init__(self, region: str, store: Store, outside: Outside, *, pause_s: float = PAUSE_S) -> None:
        """Begin with the first sweep at once."""
        self.region = region
        self._store = store
        self._outside = outside
        self._pause_s = pause_s
        self._due_s = float("-inf")
        self._token: str | None = None
        self._in_progress = False
        self._rests_until_s = float("-inf")
        # Of the region's open jobs: what was last seen of each, and when those were sent that were not come across yet.
        self._seen: dict[str, str] = {}
        self._unlisted: dict[str, float] = {}
        # What has ended stays so, and List shows it in every sweep: to look it up each time was half of a step.
        self._ended: set[str] = set()
        self._is_thorough = True
        self._swept = 0
        # When the sweep began, and the last one whose List was read to its end.
        self._begun_s = self._whole_s = float("-inf")
        # A dict for its order: the first that changed is asked about first.
        self._changed: dict[str, str] = {}

    @property
    def describes(self) -> bool:
        """Whether all that is left of the sweep is to describe what has changed."""
        return bool(self._changed) and not self._in_progress

    def due_s(self, now: float) -> float | None:
        """Return when it has something to do; None is never, until something is sent."""
        if self._changed or self._in_progress:
            return max(now, self._rests_until_s)
        return self._due_s if self._has_work(now) else None

    def waiting(self, longer_s: float, now: float) -> list[Attempt]:
        """Return the attempts that were seen to wait for their instances for longer than so many seconds.

        What was seen before says nothing: their instances may have come while nobody looked, because a laptop slept,
        the region fell silent, or the controller was started again.
        """
        late = self._store.pending_since(self.region, min(now, self._whole_s) - longer_s)
        return [attempt for attempt in late if attempt.name not in self._changed]

    def _has_work(self, now: float) -> bool:
        return self._since(now) is not None

    def _since(self, now: float) -> float | None:
        """Return when the oldest job was intended that List has to show; None where there is none."""
        row = self._store.database.connection.execute(
            "SELECT min(at_s) FROM ("
            "SELECT min(intended_s) AS at_s FROM attempt WHERE state <> 'ended' AND region = :region "
            "UNION ALL SELECT min(intended_s) FROM attempt WHERE watch_s > 0 AND watch_s > :now AND region = :region "
            "UNION ALL SELECT min(seen_s) FROM stray WHERE ended_s IS NULL AND region = :region)",
            {"region": self.region, "now": now},
        ).fetchone()
        return None if row[0] is None else float(row[0])

    def rest(self, now: float) -> None:
        """Leave a region alone for a pause that did not answer; then the sweep begins anew."""
        self._in_progress, self._due_s, self._rests_until_s = False, now + self._pause_s, now + self._pause_s

    def step(self, now: float) -> None:
        """Do as much of the sweep as the buckets allow.

        Raises:
            Silence: The region did not answer.
        """
        if now < self._rests_until_s <= now + self._pause_s:
            return
        if not self._in_progress and self._is_due(now) and self._has_work(now):
            self._begin(now)
        with contextlib.suppress(_Pause):
            while self._in_progress:
                self._read_page(now)
        with contextlib.suppress(_Pause):
            while self._changed:
                self._look_at(list(itertools.islice(self._changed, LOOKS)), now)

    def _is_due(self, now: float) -> bool:
        # The clock may have been set back: no sweep is due later than a pause from now.
        if not (now >= self._due_s or self._due_s > now + self._pause_s):
            return False
        # What it would find could not be described sooner: of 100,000 rows a third of all time was spent on pages of
        # jobs that were known to wait for Describe. What is left is enough for as long as a sweep may take.
        wait_s = self._outside.limiter.wait_s(self.region, "describe", now, len(self._changed))
        return wait_s <= self._pause_s or now >= self._due_s + (PATIENCE - 1) * self._pause_s

    def _begin(self, now: float) -> None:
        self._in_progress, self._token, self._due_s = True, None, now + self._pause_s
        self._begun_s = now
        attempts = self._store.sent(self.region)
        self._seen = {name: seen for name, (seen, _) in attempts.items()}
        self._unlisted = {name: sent_s for name, (_, sent_s) in attempts.items()}
        # A job that nobody waits for may be older than all that are open. Else List ends with the last of these: of
        # jobs of three minutes, to read on by MARGIN_S means two pages where one would do.
        self._is_thorough = not self._swept or self._store.is_doubtful(self.region, now)
        self._swept += 1

    def _ask(self, operation: str, now: float, call: Any) -> Any:
        try:
            return self._outside.ask(self.region, operation, now, call)
        except Silence as silence:
            if silence.reason:
                raise
            raise _Pause from None

    def _read_page(self, now: float) -> None:
        prefix, token, since = self._store.grid().prefix, self._token, self._since(now)
        page: Page = self._ask("list", now, lambda region: region.page(prefix, token))
        with self._store.database.transaction("page"):
            record_answer(self._store, self.region, now)
            # AWS's NameContains finds the words anywhere in a name. Most have not changed; and where Describe is the
            # slower call, thousands have that wait for it, of which every page would be looked up again.
            changed = [
                listed
                for listed in page.jobs
                if listed.name.startswith(prefix)
                and listed.name not in self._ended
                and listed.seen not in (self._seen.get(listed.name), self._changed.get(listed.name))
            ]
            states = self._store.seen_of([listed.name for listed in changed]) if changed else {}
            for listed in changed:
                self._compare(listed, states.get(listed.name), now)
        for listed in page.jobs:
            self._unlisted.pop(listed.name, None)
        self._token = page.token
        if self._is_last(page, since):
            self._in_progress, self._whole_s = False, self._begun_s
            self._ask_for_unlisted(now)

    def _is_last(self, page: Page, since: float | None) -> bool:
        """Return whether no later page can have what the sweep is for."""
        if page.token is None or not (self._is_thorough or self._unlisted):
            return True
        oldest = min((listed.created_s for listed in page.jobs), default=None)
        return oldest is not None and since is not None and oldest < since - MARGIN_S

    def _compare(self, listed: Listed, state: str | None, now: float) -> None:
        if state is None:
            # Nobody of us waits for it: a Create that landed late, or one of a store that was lost.
            if note_stray(self._store, listed, self._store.attempt(listed.name), self.region, now):
                self._changed[listed.name] = listed.seen
        elif state == ENDED:
            self._ended.add(listed.name)
        elif state != listed.seen:
            self._changed[listed.name] = listed.seen

    def _ask_for_unlisted(self, now: float) -> None:
        for name, sent_s in self._unlisted.items():
            if now - sent_s > UNLISTED_S:
                self._changed.setdefault(name, self._seen[name])

    def _look_at(self, names: list[str], now: float) -> None:
        """Describe as many of these as there are calls for, and keep what they say as one effect."""
        calls = self._outside.limiter.take(self.region, "describe", now, len(names))
        if not calls:
            raise _Pause
        answers: list[_Answer] = []
        attempts = self._store.attempts_of(names[:calls])
        try:
            for name in names[:calls]:
                attempt = attempts.get(name)
                answers.append(_Answer(name, attempt, self._describe(name, now)))
        except Silence:
            # What was answered before the region fell silent is kept all the same.
            self._outside.limiter.give_back(self.region, "describe", calls - len(answers) - 1, now)
            if answers:
                self._keep(answers, now)
            raise
        self._keep(answers, now)

    def _describe(self, name: str, now: float) -> Description | JobNotFound:
        try:
            return self._outside.answer(self.region, "describe", now, lambda region: region.describe(name))
        except JobNotFound as error:
            return error

    def _keep(self, answers: "list[_Answer]", now: float) -> None:
        # What was known of the attempts before they were asked about still is: the fence says that nobody else wrote.
        with self._store.database.transaction("described"):
            record_answer(self._store, self.region, now)
            for name, attempt, answer in answers:
                if isinstance(answer, JobNotFound):
                    self._take_for_gone(attempt, str(answer), now)
                else:
                    self._take_over(name, attempt, answer, now)
        for name, _, _ in answers:
            # What was seen of it when the sweep began holds no more.
            self._seen.pop(name, None)
            del self._changed[name]

    def _take_over(self, name: str, attempt: Attempt | None, description: Description, now: float) -> None:
        if attempt is not None and attempt.state is not AttemptState.ENDED:
            apply(self._store, attempt, description, self._changed[name], now)
            if description.status.is_terminal:
                keep_last(self._store, name, description, now)
        elif attempt is None or attempt.sent_s is None:
            end_stray(self._store, name, description, now)

    def _take_for_gone(self, attempt: Attempt | None, words: str, now: float) -> None:
        # List and Describe may lag behind Create: for a while not to be known says nothing.
        if attempt is None or attempt.sent_s is None or now - attempt.sent_s < GONE_S:
            return
        if attempt.state is not AttemptState.ENDED:
            verdict = Verdict(ending=ENDINGS["UNKNOWN"], reason=f"the service knows the job no more: {words}")
            conclude(self._store, attempt, verdict, None, now)


class _Answer(NamedTuple):
    """What Describe says of a job."""

    name: str
    attempt: Attempt | None
    description: Description | JobNotFound


class _Pause(Exception):
    """No call is left: the sweep goes on with the next step."""


def apply(
    store: Store,
    attempt: Attempt,
    description: Description,
    noticed: str,
    now: float,
) -> None:
    """Update an open attempt with what Describe says, within a transaction."""
    verdict = classify_end(description, attempt.wish)
    if verdict is not None:
        conclude(store, attempt, verdict, description, now)
        return
    state = AttemptState.PENDING if description.secondary in WAITING else AttemptState.RUNNING
    changes: dict[str, Any] = {
        "state": state,
        "seen": noticed,
        "is_doubtful": False,
    }
    if attempt.sent_s is None:
        changes["sent_s"] = now
    if description.started is not None:
        changes["started_s"] = description.started.timestamp()
    changes |= attempt.settled(description.selected_type) | interrupted(description)
    moved = store.move(attempt, now, **changes)
    if moved.interruptions > attempt.interruptions:
        tell_interruptions(store, moved, now)
    if moved.started_s is not None and attempt.started_s is None:
        # When it begins, not when it ends: hours later a place may be left alone that has been giving all the while.
        record_start(store, moved)
