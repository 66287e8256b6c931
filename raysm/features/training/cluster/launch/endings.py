"""Notice that the loop of one rank has returned while other ranks still take steps together.

A process that ends closes its connections, so the others fail at once. But a worker of Ray Train
lives until all workers have returned: the others would wait for it until torch's timeout, half an
hour.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch.distributed as dist

from raysm.features.training.cluster.loop.session import Session

WATCH_POLL_S = 1.0
"""Seconds between two looks of a rank that trains."""
END_POLL_S = 0.05
"""Seconds between two looks of a rank that has ended."""
ANNOUNCE_S = 5.0
"""Seconds after which a rank that waits for the others says so."""

STUCK_S = 5.0
"""Seconds in one call of torch without computing, after which a rank counts as waiting."""
COLLECTIVE = (
    "torch/distributed/distributed_c10d.py",
    "torch/nn/parallel/distributed.py",
    "torch/autograd/graph.py",
)
"""Files of torch in whose functions a process waits for the others; the last is the backward
pass."""

ENDED = "ended"
FIRST = "first"
AHEAD = "ahead"


class EndedEarly(Exception):
    """This rank's loop returned, and another rank waits for it."""


class Endings:
    """The ends of all ranks' loops, in the store of torch's process group."""

    def __init__(self, session: Session, say: Callable[[str], None]) -> None:
        self._session = session
        self._say = say
        self._store: Any = None
        if session.world_size > 1:
            # Kept here, because rank 0 has the store's server, and its loop may end the group.
            default = dist.distributed_c10d._get_default_store()
            self._store = dist.PrefixStore("raysm/ends", default)  # type: ignore[attr-defined]
        self._over = threading.Event()
        self._stuck = _Stuck(session)
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="raysm-endings")

    def __enter__(self) -> "Endings":
        if self._store is not None:
            self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_watching()

    def finish(self) -> None:
        """Wait until the loop of every rank has returned.

        Raises:
            EndedEarly: Another rank waits for this one.
        """
        if self._store is None:
            return
        self._stop_watching()
        with contextlib.suppress(dist.DistError):
            self._wait_for_others()

    def _wait_for_others(self) -> None:
        session = self._session
        began_s = time.monotonic()
        if self._store.add(ENDED, 1) == 1:
            self._store.set(FIRST, f"{session.rank} {session.rounds}")
        is_announced = False
        while (count := self._store.add(ENDED, 0)) < session.world_size:
            if self._store.check([AHEAD]):
                raise EndedEarly(
                    f"its loop ended after {session.rounds} steps and evaluations of raysm, while"
                    f" {self._store.get(AHEAD).decode()}; every rank must take the same steps"
                )
            if not is_announced and time.monotonic() - began_s > ANNOUNCE_S:
                is_announced = True
                self._say(
                    f"the loop of rank {session.rank} on {session.host} has ended; it waits for"
                    f" {session.world_size - count} of {session.world_size} ranks"
                )
            time.sleep(END_POLL_S)

    def early(self) -> list[tuple[int, str]]:
        """Return rank and host of the loop that ended first; an empty list if no loop has ended."""
        try:
            if self._store is None or not self._store.check([FIRST]):
                return []
            rank, _ = map(int, self._store.get(FIRST).split())
        # The process of rank 0 has ended, and the store with it.
        except dist.DistError:
            return []
        return [(rank, self._session.hosts[rank])]

    def _watch(self) -> None:
        session = self._session
        stuck = self._stuck
        while not self._over.wait(WATCH_POLL_S):
            with contextlib.suppress(dist.DistError):
                if not self._store.check([FIRST]):
                    continue
                _, rounds = map(int, self._store.get(FIRST).split())
                doing = (
                    f"began number {session.rounds}" if session.rounds > rounds else stuck.look()
                )
                if doing is not None:
                    self._store.set(AHEAD, f"rank {session.rank} on {session.host} {doing}")
                    return

    def _stop_watching(self) -> None:
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join()


class _Stuck:
    """Whether the thread that made this waits in torch for other ranks."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # Not the main thread: Ray Train runs the loop in another one.
        self._thread = threading.get_ident()
        self._state = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
        self._seen: tuple[object, int] | None = None
        self._since_s = self._cpu_s = 0.0

    def look(self) -> str | None:
        """Return where the thread waits, if it has done so for ``STUCK_S`` and nothing computes."""
        frame = sys._current_frames().get(self._thread)
        now_s = time.monotonic()
        cpu_s = time.process_time()
        if frame is None or not frame.f_code.co_filename.endswith(COLLECTIVE) or self._is_running():
            self._seen = None
            return None
        group = frame.f_locals.get("group")
        place = (frame, frame.f_lasti)
        # A part of the ranks may wait for one another.
        if group not in (None, dist.group.WORLD, self._session.cpu_group):
            return None
        if place != self._seen:
            self._seen = place
            self._since_s = now_s
            self._cpu_s = cpu_s
        if now_s - self._since_s < STUCK_S or cpu_s - self._cpu_s > STUCK_S / 2:
            return None
        return f"has waited in {frame.f_code.co_name} for {STUCK_S:.0f} s"

    def _is_running(self) -> bool:
        """Return whether the thread computes, or would if a busy machine had a core for it."""
        try:
            # The state follows the name in parentheses.
            return self._state.read_text().rpartition(") ")[2][:1] == "R"
        # Only Linux has this file.
        except OSError:
            return False
