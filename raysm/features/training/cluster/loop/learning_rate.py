"""The learning rate for another batch: linear scaling with gradual warm-up.

P. Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (arXiv
1706.02677), sections 2.1 and 2.2: if the batch grows by the factor k, the rate grows by k, and over
the first epochs (5 in the paper) it rises linearly, step by step, from the rate of the small batch.

The rate is multiplied only during the optimizer's step, and restored after it, so that the user's
scheduler sees and saves its own rate.
"""

import inspect
from typing import Any

from torch.optim import Optimizer

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.loop.session import Observer, Session


class ScaledRate(float):
    """The rate of the base batch: a float that ``prepare`` recognises in the optimizer."""

    base_batch: int
    warmup_epochs: float
    batch: int | None
    steps_per_epoch: int | None

    def __reduce__(self) -> Any:
        return float, (float(self),)


def scale(
    lr: float,
    *,
    base_batch: int = 256,
    warmup_epochs: float = 5,
    batch: int | None = None,
    steps_per_epoch: int | None = None,
) -> ScaledRate:
    """Return a learning rate that ``prepare`` scales to the global batch, with a gradual warm-up.

    Give it to the optimizer as it is (``SGD(parameters, lr=training.scale(0.1))``), before
    ``prepare``. The global batch and the steps of an epoch are those of ``training.batches``,
    unless they are given here.

    Args:
        lr: The rate that suits ``base_batch``.
        base_batch: The batch for which ``lr`` was found.
        warmup_epochs: Epochs over which the rate rises from ``lr``; 0 is none. A rate that falls
            needs none.
        batch: Rows of one step over all workers.
        steps_per_epoch: Steps of one pass over the data.

    Raises:
        InvalidRequest: A number is out of range.
    """
    for name, value in (
        ("base_batch", base_batch),
        ("batch", batch),
        ("steps_per_epoch", steps_per_epoch),
    ):
        if value is not None and value < 1:
            raise InvalidRequest(f"training.scale: {name}={value} must be at least 1")
    if lr <= 0 or warmup_epochs < 0:
        raise InvalidRequest(
            f"training.scale: lr={lr} must be greater than 0, and warmup_epochs={warmup_epochs} at "
            "least 0"
        )
    # A float with attributes: optimizers and schedulers take nothing else, and ``prepare``
    # recognises it.
    rate = ScaledRate(lr)
    rate.base_batch = base_batch
    rate.warmup_epochs = warmup_epochs
    rate.batch = batch
    rate.steps_per_epoch = steps_per_epoch
    return rate


def factor(step: int, *, growth: float, warmup_steps: int) -> float:
    # A smaller batch than the base's needs no warm-up: its rate is lower from the beginning.
    if growth <= 1 or step >= warmup_steps:
        return growth
    return 1 + (growth - 1) * step / warmup_steps


def attach_rate(session: Session, optimizer: Optimizer) -> None:
    session.attach(Rate(session, optimizer))


class Rate(Observer):
    def __init__(self, session: Session, optimizer: Optimizer) -> None:
        self._session = session
        self._optimizer = optimizer
        self._is_announced = False
        self._own: list[float] = []
        self._scaled: dict[int, ScaledRate] = {}
        for index, group in enumerate(optimizer.param_groups):
            # Replaced by a float at once, because a scheduler may copy, multiply and pickle it.
            if isinstance(group["lr"], ScaledRate):
                self._scaled[index] = group["lr"]
                group["lr"] = float(group["lr"])

    def on_step_begin(self, step: int) -> None:
        if self._is_announced:
            return
        self._is_announced = True
        self._say()
        if self._scaled:
            # Not earlier, because reading a checkpoint steps the optimizer once, to create its
            # state. Around the optimizer's own step alone: what schedulers and checkpoints see is
            # the user's rate.
            self._optimizer.register_step_pre_hook(self._multiply)
            self._optimizer.register_step_post_hook(self._restore)

    def _say(self) -> None:
        session = self._session
        ranks = self._session.data_ranks
        order = session.position.order
        before = session.position.batch_before
        rates = ", ".join(
            f"{rate:g}"
            for rate in dict.fromkeys(float(g["lr"]) for g in self._optimizer.param_groups)
        )
        batch = None if order is None else order.batch_size
        grown = ""
        if self._scaled:
            # The first one stands for all: groups may differ in rate, but hardly in their base
            # batch.
            scaled = next(iter(self._scaled.values()))
            growth, warmup_steps = self._plan(scaled)
            # Computed from k, so that the sentence shows what the step uses.
            batch = round(growth * scaled.base_batch)
            warm_up = (
                f"reached after {warmup_steps} steps of warm-up"
                if growth > 1 and warmup_steps
                else "at once"
            )
            session.say(
                f"global batch {batch}, rate {float(scaled) * growth:g} = {float(scaled):g} × "
                f"{batch} / {scaled.base_batch}, {warm_up}"
            )
        elif batch is None:
            session.say(f"rate {rates}, not scaled, no warm-up; the batches are the script's own")
            grown = f"{ranks} times that of one worker" if ranks > 1 else ""
        else:
            over = f"{ranks} data rank{'' if ranks == 1 else 's'}"
            session.say(f"global batch {batch} over {over}, rate {rates}, not scaled, no warm-up")
            if before is not None and batch > before:
                grown = f"{batch / before:g} times that of the checkpoint, {before}"
        if grown:
            session.say(
                f"warning: the global batch is {grown}; scale the rate: lr=training.scale(lr, "
                "base_batch=…)"
            )
        # The rate was found for the checkpoint's batch; continuing with another one is allowed, but
        # seldom meant.
        elif batch is not None and before not in (None, batch):
            session.say(
                f"warning: the global batch is {batch}, that of the checkpoint was {before}"
            )

    def _plan(self, rate: ScaledRate) -> tuple[float, int]:
        order = self._session.position.order
        batch = rate.batch or (order.batch_size if order else None)
        # Rounded up: the last, smaller batch of an epoch is a step, too.
        steps = rate.steps_per_epoch
        if not steps and order and order.samples is not None:
            steps = -(-order.samples // order.batch_size)
        if order is not None and steps is None and rate.warmup_epochs:
            raise InvalidRequest(
                "training.scale: the data are a stream, whose length it cannot know; give "
                "steps_per_epoch=…, or warmup_epochs=0"
            )
        if batch is None or (steps is None and rate.warmup_epochs):
            raise InvalidRequest(
                "training.scale: the batches are the script's own, so it cannot know the global "
                "batch or the length of an epoch; give batch=… and steps_per_epoch=…, or read by "
                "training.batches"
            )
        return batch / rate.base_batch, round(rate.warmup_epochs * (steps or 0))

    def _multiply(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._own = [group["lr"] for group in optimizer.param_groups]
        for index, rate in self._scaled.items():
            growth, warmup_steps = self._plan(rate)
            by = factor(self._session.position.steps, growth=growth, warmup_steps=warmup_steps)
            optimizer.param_groups[index]["lr"] = self._own[index] * by

    def _restore(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for group, rate in zip(optimizer.param_groups, self._own, strict=True):
            group["lr"] = rate


METHODS = ("step", "state_dict", "load_state_dict")


def check_scheduler(scheduler: Any, optimizer: Optimizer) -> None:
    missing = [name for name in METHODS if not callable(getattr(scheduler, name, None))]
    # A class instead of an instance has the methods too, and would fail in the first step.
    if missing or inspect.isclass(scheduler):
        raise InvalidRequest(
            f"scheduler is {scheduler!r}; it must be one of torch.optim.lr_scheduler, made with "
            "the optimizer: CosineAnnealingLR(optimizer, T_max=1000)"
        )
    # The scheduler of another optimizer would have no effect on the training.
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise InvalidRequest(
            f"the scheduler, a {type(scheduler).__name__}, steps the rate of another optimizer "
            "than the one that is trained with; make it from that one"
        )


def needs_metric(scheduler: Any) -> bool:
    """Return whether a step of the scheduler takes a metric, which only the loop knows.

    ``ReduceLROnPlateau`` is such a scheduler.
    """
    # By its parameters, not by its class, because schedulers of other packages may need a metric
    # too.
    parameters = inspect.signature(scheduler.step).parameters.values()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(
        parameter.default is parameter.empty and parameter.kind in by_place
        for parameter in parameters
    )
