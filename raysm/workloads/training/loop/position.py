"""Where in its data a training is: moved by steps alone, whatever else is read meanwhile.

What flows in are the batches that loops over ``batches`` hand out, and the steps; what flows out are the session's
``epoch``, ``offset`` and ``order``, which checkpoints keep. A loop none of whose batches is stepped (a validation)
leaves no trace in them. A loop is known by its own ``DataOrder``: compared by identity, it is the loop; by its fields,
what the order of its rows follows from.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from raysm.errors import InvalidRequest
from raysm.workloads.training.loop.data_order import BatchSlice, DataOrder
from raysm.workloads.training.loop.session import Session

__all__ = ["begin", "hand_out", "learn", "leave", "passed"]

FIELDS = ("samples", "shuffle", "seed")
"""Of an order: what has to stay for the rows of an epoch to be the same. Batches may be cut otherwise."""


def begin(session: Session, order: DataOrder, *, is_single: bool) -> tuple[int, int]:
    """Return the epoch, and the sample of it, at which a loop of that order begins.

    It goes on in the middle of an epoch if its rows would be those that are still to come, and no other loop is at it.

    Args:
        session: Of the training.
        order: Of the loop.
        is_single: Whether it is one pass, whichever; else its passes are counted over the whole training.
    """
    if session.coming is not None or not (session.order is None or _changed(session.order, order) is None):
        return session.epoch, 0
    for observer in session.observers:
        observer.on_loop_begin()
    # The user's own steps never say what they learned from: passes are all that there is to count.
    if session.order is None and is_single and not session.counts_epochs:
        return session.epoch + session.passes, session.offset
    if session.offset and not session.is_trained:
        session.order = order
        return session.epoch, session.offset
    return session.epoch, 0


def hand_out(session: Session, batches: Iterable[tuple[BatchSlice, Any]]) -> Iterator[Any]:
    """Yield the batches of one pass; while the caller has one, it is what his step learns from."""
    # Loops may be nested: a validation inside of a training must give the step its batch back.
    around = session.coming
    part: BatchSlice | None = None
    try:
        for part, batch in batches:
            session.coming = part
            yield batch
    finally:
        # Also where the caller breaks out. One that is left late must not take away what another hands out.
        if session.coming is part:
            session.coming = around


def learn(session: Session) -> None:
    """A step begins: it learns from the batch that was handed out last.

    Not when it ends: a checkpoint is made at its end, and holds what was learned from it.

    Raises:
        InvalidRequest: The batch is not one of those that are still to come in this epoch.
    """
    part = session.coming
    if part is None:
        return
    if session.order is not part.order:
        _check_belongs(session, part)
        session.order = part.order
    session.epoch, session.offset = part.epoch, part.end


def passed(session: Session, order: DataOrder, epoch: int, *, is_single: bool) -> None:
    """A loop of that order has handed out the last batch of the epoch."""
    if session.order is order and session.counts_epochs:
        session.is_trained = True
    elif session.order is order:
        session.epoch, session.offset = epoch + 1, 0
    elif session.order is None and is_single and not session.counts_epochs:
        # Nothing is ever stepped, perhaps: the user's own steps are to see another order in each pass.
        session.passes += 1


def leave(session: Session, epoch: int) -> None:
    """The epoch is over, and the next one begins."""
    session.epoch, session.offset, session.is_trained = epoch + 1, 0, False


def _check_belongs(session: Session, part: BatchSlice) -> None:
    """Refuse what would leave out rows of this epoch, or learn from some twice, and could not be gone on with."""
    if session.order is None:
        return
    # A checkpoint keeps one order and one offset.
    if session.is_trained:
        raise InvalidRequest(
            f"training.step: epoch {session.epoch} was trained on already, by a loop over {session.order.samples}"
            " samples: a checkpoint could not say in which of two loops it was made; put both data sets into one"
            " (torch.utils.data.ConcatDataset), or train on them in epochs of their own"
        )
    if session.offset == 0:
        return
    changed = _changed(session.order, part.order)
    if changed is not None:
        was, now = getattr(session.order, changed), getattr(part.order, changed)
        raise InvalidRequest(
            f"batches: the checkpoint of step {session.steps} was made in the middle of an epoch with {changed}={was},"
            f" now it is {now}: go on with the same, or begin anew with another folder for the checkpoints"
        )
    if part.begin != session.offset:
        raise InvalidRequest(
            f"training.step: the batch begins with sample {part.begin} of epoch {part.epoch}, but the training is at"
            f" sample {session.offset} of epoch {session.epoch}: another loop over training.batches was not at its"
            " end; leave it before the next one begins"
        )


def _changed(before: DataOrder, now: DataOrder) -> str | None:
    """Return the first field by which the orders differ; None if they are the same."""
    return next((name for name in FIELDS if getattr(before, name) != getattr(now, name)), None)
