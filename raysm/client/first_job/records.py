"""The folder of the first hour: every call with its answer, and what the instances said of themselves.

::

    FOLDER/calls/0001-training-s3-PutObject.json     what was asked and answered
    FOLDER/TRIAL/log.txt                             the log as it was followed
    FOLDER/TRIAL/algo-1.json                         what an instance is like, by topic
    FOLDER/TRIAL/description.json                    what Describe said at the end
    FOLDER/TRIAL/objects.json                        what lies in S3 afterwards, with the small ones' content
    FOLDER/answers.md                                what was taken for granted, and what was seen

What is a secret is blanked before it is written.
"""

import json
import threading
from pathlib import Path
from typing import Any

from raysm.client.exchange import Exchange
from raysm.client.first_job.blanking import Blanks
from raysm.contract.store import put

__all__ = ["Records"]

POLLS = ("Describe", "List", "GetLogEvents", "Head")
"""How the names of operations begin of which an answer that is like the last one is not kept again."""


class Records:
    """Writes the folder, file by file."""

    def __init__(self, folder: Path) -> None:
        """Write into ``folder``; nothing is written before it is known what has to be blanked."""
        self.folder = folder
        self.trial = "before"
        self._blanks: Blanks | None = None
        # Who the caller is, and which bucket is theirs, is asked by calls as well: these wait for the blanks.
        self._early: list[Exchange] = []
        self._last: dict[str, str] = {}
        self._count = 0
        # Transfers are told of in threads of their own.
        self._lock = threading.Lock()

    def begin(self, blanks: Blanks) -> None:
        """Write from now on, with these blanks; first what came before."""
        self._blanks, early = blanks, self._early
        for exchange in early:
            self.observe(exchange)

    def observe(self, exchange: Exchange) -> None:
        """Keep one call."""
        with self._lock:
            if self._blanks is None:
                self._early.append(exchange)
                return
            text = json.dumps(
                {
                    "call": exchange.call,
                    "status": exchange.status,
                    "parameters": self._blanks.value(exchange.parameters),
                    "answer": self._blanks.value(_without_metadata(exchange.answer)),
                    "obstacle": self._blanks.text(exchange.obstacle),
                },
                indent=1,
            )
            if exchange.operation.startswith(POLLS) and self._last.get(exchange.call) == text:
                return
            self._last[exchange.call] = text
            self._count += 1
            name = f"{self._count:04}-{self.trial}-{exchange.service}-{exchange.operation}.json"
        put(self.folder / "calls" / name, text + "\n")

    def keep(self, name: str, content: Any) -> None:
        """Write one file of the trial: a text as it is, all else as JSON."""
        self.write(f"{self.trial}/{name}", content)

    def write(self, name: str, content: Any) -> None:
        """Write one file of the folder."""
        assert self._blanks is not None, "nothing is written before it is known what has to be blanked"
        blanked = self._blanks.value(content)
        put(self.folder / name, blanked if isinstance(content, str) else json.dumps(blanked, indent=1) + "\n")


def _without_metadata(answer: Any) -> dict[str, Any]:
    # Request IDs and dates make each answer different, and nobody needs them.
    return {name: item for name, item in answer.items() if name != "ResponseMetadata"}
