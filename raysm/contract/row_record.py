"""What has become of the rows that share a job: the job writes it among its checkpoints, and the grid reads it there.

One file for all of them, written anew with every change, so that who looks from afar makes one call. It says of each
row that is done which files it left, and how large: the service brings files to S3 one after the other, and in no order
that anybody promises, so that a row is believed to be done when its files are there too.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from raysm.errors import InvalidRequest
from raysm.request.codec import from_json, to_json

__all__ = ["MODEL", "ROW_RECORD", "RowOutcome", "RowState", "confirmed", "outcomes_in", "outcomes_text"]

ROW_RECORD = "rows.json"
"""Its name, beside the rows' folders."""

MODEL = "model"
"""In a row's folder: what its program wrote into $SM_MODEL_DIR."""


RowState: TypeAlias = Literal["running", "done", "failed"]
"""``running``: it was begun. ``done``: its program ended well, and its files are where they belong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOutcome:
    """What has become of one row in one job."""

    state: RowState
    """How far it is."""
    reason: str = ""
    """Why it failed: one line."""
    seconds: float = 0.0
    """How long its program ran."""
    host: str = ""
    """On which instance."""
    files: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the files that it left, by their names below the row's folder."""


@dataclass(frozen=True, slots=True)
class _Record:
    rows: Mapping[str, RowOutcome]


def outcomes_text(outcomes: Mapping[str, RowOutcome]) -> str:
    """Return the record's content, by the rows' names."""
    return json.dumps(to_json(_Record(outcomes)))


def outcomes_in(text: str | bytes) -> dict[str, RowOutcome]:
    """Return what a record says, by the rows' names; nothing where it is none."""
    try:
        return dict(from_json(_Record, json.loads(text), ROW_RECORD).rows)
    # A copy that an instance's end has cut: it says nothing, and the rows are run again.
    except (ValueError, InvalidRequest):
        return {}


def confirmed(outcomes: Mapping[str, RowOutcome], sizes: Mapping[str, int]) -> dict[str, RowOutcome]:
    """Return outcomes as far as the files bear them out; a row that is done, and whose files lack, counts as running.

    Args:
        outcomes: By the rows' names.
        sizes: Of the files that are there, by their names: ``ROW/model/weights.bin``.
    """
    return {
        name: outcome
        if all(sizes.get(f"{name}/{file}") == size for file, size in outcome.files.items())
        else RowOutcome(state="running", host=outcome.host)
        for name, outcome in outcomes.items()
    }
