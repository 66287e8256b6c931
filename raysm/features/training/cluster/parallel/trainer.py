"""The trainer that ``prepare`` makes: a model and an optimizer that train together.

It knows all modes of parallelism. Its state has the names that model and optimizer had before
anything was cut, so every mode reads the checkpoints of every other.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from raysm.errors import InvalidInput, InvalidRequest
from raysm.features.training.cluster.degrees import Layout, Parallel
from raysm.features.training.cluster.engines.full_model import Engine, averages_of_first, no_sums
from raysm.features.training.cluster.engines.gradients import clip
from raysm.features.training.cluster.engines.mean_loss import MeanLoss
from raysm.features.training.cluster.loop.batch import Batch
from raysm.features.training.cluster.loop.learning_rate import needs_metric
from raysm.features.training.cluster.loop.position import UNSHARDED
from raysm.features.training.cluster.loop.random_state import capture_state, restore_state
from raysm.features.training.cluster.loop.session import Session
from raysm.features.training.cluster.loop.step_loss import StepLoss
from raysm.features.training.cluster.parallel.optimizers import readable, stateful, trained

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
"""One entry for each value of each parameter: the ranks of a pipeline then just have different
entries."""


SINGLE_ROW = "Expected more than 1 value per channel"
"""Part of the message of torch's batch norms."""


@dataclass(kw_only=True, slots=True)
class RankModel:
    model: nn.Module
    """The wrapped model that the user gets; of a pipeline, the stages of this rank."""
    parts: nn.Module
    engine: Engine
    stages: "dist.ProcessGroup | None" = None
    copies: Sequence[nn.Parameter] = ()
    """Parameters that an earlier rank of the pipeline has and counts."""
    replicas: "Sequence[dist.ProcessGroup]" = ()
    """This rank's group in each dimension of the mesh whose ranks have the same norms."""


@dataclass(kw_only=True, slots=True)
class Trainer(RankModel):
    session: Session
    parallel: Parallel
    layout: Layout
    names: tuple[str, ...]
    """All keys of the model's ``state_dict``, in its order, before anything was split."""
    optimizer: Optimizer
    scheduler: Any
    """Stepped once a step, unless it takes a metric."""
    loss: MeanLoss
    max_norm: float | None = None
    rehearses: bool = False
    """Rehearse the next step, the first one after a restart."""
    has_compared_data: bool = False
    """The first step compared the data of all ranks."""
    has_compared_loss: bool = False
    """The loss of a batch was compared with those of its halves, in a step or an evaluation."""

    def step(self, user_batch: Any) -> StepLoss:
        """Train on this rank's slice of a batch; return the mean loss of the whole batch."""
        batch = Batch.of(user_batch)
        session = self.session
        session.rounds += 1
        if not self.has_compared_data:
            self._compare_data()
            self.has_compared_data = True
        # Before the step, because a checkpoint at its end must include these rows.
        session.position.learn()
        number = session.position.steps + 1
        for observer in session.observers:
            observer.on_step_begin(number)
        with session.span("compute"):
            share = self._share(batch)
            # Gradients are averaged over the data ranks: one whose slice is larger than the mean
            # weighs more.
            factor = share * self.layout.data_ranks
            if self.rehearses:
                self._rehearse(batch, factor)
            with self._naming_single_rows(batch):
                loss = self.engine.forward_backward(batch, factor)
            # Not earlier: a stop that is asked for meanwhile should end the training after this
            # step. Not later: the optimizer computes while the hosts exchange.
            end_exchange = session.begin_exchange()
            own = loss * share
            mean = session.mean_of(own)
            if self.max_norm is not None:
                clip(self.parts.parameters(), self.max_norm, self.stages, self.copies)
            self.optimizer.step()
            # At the end, not at the beginning: gradients take as much memory as the weights, which
            # a checkpoint may use meanwhile. All parameters, not only the optimizer's: other
            # gradients would add up and change the norm by which all are clipped.
            self.parts.zero_grad(set_to_none=True)
            if self.scheduler is not None and not needs_metric(self.scheduler):
                self.scheduler.step()
        with session.span("communication"):
            self._say_if_uneven()
            session.losses.append((number, mean, own))
            session.position.steps = number
            end_exchange()
        for observer in session.observers:
            observer.on_step_end(number, mean)
        return mean

    def _share(self, batch: Batch) -> float:
        """Return how much of the mean over the whole batch this data rank's slice makes."""
        session = self.session
        if self.loss.divisor is None:
            return 1 / self.layout.data_ranks if session.share is None else session.share
        own = 0.0 if session.share == 0 else self.loss.weigh(batch.target, batch.rows)
        # Sent as NaN, so that every rank raises.
        weights = torch.tensor([own if own >= 0 else math.nan], dtype=torch.float64)
        if session.cpu_group is not None:
            dist.all_reduce(weights, group=session.cpu_group)
        # Ranks that share a slice have counted it each.
        total = float(weights) / (self.layout.pipeline * self.layout.tensor)
        if not 0 < total < math.inf:
            raise InvalidInput(
                f"training.step: the divisor of this batch is {total}, here {own}; it must be "
                "above 0: leave out rows without a target"
            )
        return own / total

    @contextmanager
    def _naming_single_rows(self, batch: Batch) -> Iterator[None]:
        try:
            yield
        except (ValueError, RuntimeError) as error:
            # Pipelines of torch chain the error of a stage.
            causes = [error, error.__cause__, error.__context__]
            if not any(
                isinstance(cause, ValueError) and SINGLE_ROW in str(cause) for cause in causes
            ):
                raise
            current = self.session.position.current
            workers = self.layout.data_ranks
            rows = batch.rows if current is None else current.end - current.begin
            raise InvalidInput(
                "a batch norm cannot train on a single row, which this batch leaves to a worker, "
                f"piece or micro-batch (rows: {rows}, workers: {workers}); use "
                "training.batches(drop_last=True), another batch_size, or fewer pieces"
            ) from error

    def _compare_data(self) -> None:
        """Refuse data that differ between ranks: one would wait for a rank without a batch left."""
        group = self.session.cpu_group
        current = self.session.position.current
        if group is None:
            return
        fields = ("samples", "batch_size", "shuffle", "seed", "shares")
        own = current and {name: getattr(current.order, name) for name in fields} | {
            "digest": current.digest
        }
        orders: list[Any] = [None] * self.session.world_size
        dist.all_gather_object(orders, own, group=group)
        known = [(rank, order) for rank, order in enumerate(orders) if order is not None]
        for rank, order in known:
            first_rank, first = known[0]
            name = next((name for name in fields if order[name] != first[name]), None)
            if name is not None:
                raise InvalidRequest(
                    f"training.batches: {name} is {first[name]} on rank {first_rank} and "
                    f"{order[name]} on rank {rank}; give every rank the same data set and options: "
                    "it takes its slice of each batch"
                )
        self._compare_streams([(rank, order) for rank, order in known if order["digest"]])

    def _compare_streams(self, orders: list[tuple[int, dict[str, Any]]]) -> None:
        """Refuse streams that should be the same and are not: rows would be lost."""
        if len(orders) < 2 or self.layout.data_ranks == 1:
            return
        first_rank, first = orders[0]
        other = next((rank for rank, order in orders if order["digest"] != first["digest"]), None)
        is_whole = first["shares"] == UNSHARDED
        if is_whole and other is not None:
            raise InvalidRequest(
                f"training.batches: the stream of rank {first_rank} begins with other rows than "
                f"that of rank {other}: if each has its share, pass sharded=True; else give all "
                "ranks the same rows in the same order"
            )
        if not is_whole and other is None:
            self.session.say(
                "warning: the streams of all ranks begin with the same rows: with sharded=True "
                "each must take its own share, by training.share()"
            )

    def _say_if_uneven(self) -> None:
        if self.has_compared_loss:
            return
        self.has_compared_loss = True
        self.loss.is_checked = True
        uneven = torch.tensor([self.loss.is_uneven], dtype=torch.int64)
        if self.session.cpu_group is not None:
            # Only ranks with the outputs compare them, and a rank with one row cannot.
            dist.all_reduce(uneven, group=self.session.cpu_group)
        if uneven.item():
            self.session.say(self.loss.advice())

    def _rehearse(self, batch: Batch, factor: float) -> None:
        """Run forward and backward only to fix DDP's order of gradients; restore everything else.

        In its first backward pass DDP lays the gradients out by the order of the parameters, in
        later ones by the order in which they became ready. A ring of more than two ranks sums each
        piece in an order that depends on where it lies: without the rehearsal the first step after
        a restart differs in the last bit.
        """
        self.rehearses = False
        random = capture_state()
        buffers = [buffer.clone() for buffer in self.parts.buffers()]
        self.engine.forward_backward(batch, factor)
        # Back to None: a parameter that no step uses has no gradient.
        self.parts.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, before in zip(self.parts.buffers(), buffers, strict=True):
                buffer.copy_(before)
        restore_state(random)

    def evaluate(
        self, batches: Iterable[Any], metrics: Mapping[str, Callable[[Any, Any], Any]]
    ) -> dict[str, float]:
        self.session.rounds += 1
        self.session.look_at_losses()
        with evaluation(self.model, self.replicas, self.session.device):
            found = means(
                self.session, self.engine, batches, {"loss": self.loss.metric(), **metrics}
            )
        self._say_if_uneven()
        return found

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, by original names.

        ``torch.distributed.checkpoint`` takes it. Tensors are this rank's live ones: copy them
        before the next step. Cut ones are DTensors; ranks of a pipeline have the entries of their
        stages only.
        """
        state = {"model": get_model_state_dict(self.parts), "optimizer": self._optimizer_state()}
        if self.scheduler is not None:
            state["scheduler"] = self.scheduler.state_dict()
        return state

    def state_to_read(self, entries: Iterable[str]) -> dict[str, Any]:
        """Return ``state()`` for reading a checkpoint with these ``entries`` of an optimizer.

        Call this method before any step. If no entry is a state, the checkpoint is of another
        optimizer, and an error will name what it lacks.
        """
        names = stateful(entries)
        if not names:
            return self.state()
        with trained(self.parts, names):
            state = self.state()
        return state | {"optimizer": readable(state["optimizer"], names)}

    def load(self, state: dict[str, Any]) -> None:
        set_model_state_dict(self.parts, state["model"])
        with (
            _filled_groups(self.optimizer) as filled,
            trained(self.parts, stateful(state["optimizer"])),
        ):
            if filled:
                set_optimizer_state_dict(
                    self.parts, self.optimizer, state["optimizer"], options=FLAT
                )
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        # Two ranks need no rehearsal, because their sum is the same in any order.
        self.rehearses = (
            isinstance(self.model, DistributedDataParallel) and self.session.world_size > 2
        )

    def _optimizer_state(self) -> dict[str, Any]:
        with _filled_groups(self.optimizer) as filled:
            return (
                get_optimizer_state_dict(self.parts, self.optimizer, options=FLAT) if filled else {}
            )

    def full_state_dict(self) -> dict[str, torch.Tensor]:
        """Return the complete model on rank 0, on the CPU, and {} on the other ranks.

        Every rank must call this method.
        """
        self.session.look_at_losses()
        of_rank = get_model_state_dict(self.parts)
        owners = self._owners(of_rank)
        whole = {name: self._whole(of_rank.get(name), owners[name]) for name in self.names}
        return {
            name: tensor
            for name, tensor in whole.items()
            if tensor is not None and self.session.rank == 0
        }

    def _owners(self, own_names: Iterable[str]) -> dict[str, int]:
        names = [list(own_names)] * self.session.world_size
        if self.session.cpu_group:
            dist.all_gather_object(names, list(own_names), group=self.session.cpu_group)
        return {name: rank for rank in reversed(range(len(names))) for name in names[rank]}

    def _whole(self, tensor: Any, owner: int) -> torch.Tensor | None:
        """Return one tensor of rank ``owner`` on rank 0, and None on the other ranks.

        Every rank must call this method.
        """
        if isinstance(tensor, DTensor):
            # NCCL does not send what is offloaded to the CPU from there.
            on_device: Any = tensor.to(self.session.device)
            tensor = on_device.full_tensor()
        rank = self.session.rank
        group = self.session.cpu_group
        if rank == owner:
            plain: torch.Tensor = tensor.detach().to("cpu", copy=True).contiguous()
            # Rank 0 sends nothing to itself, which gloo refuses.
            if owner == 0:
                return plain
            dist.send_object_list([plain.shape, plain.dtype], 0, group=group)
            dist.send(plain, 0, group=group)
        elif rank == 0:
            shape_and_dtype: list[Any] = [None, None]
            dist.recv_object_list(shape_and_dtype, owner, group=group)
            received = torch.empty(shape_and_dtype[0], dtype=shape_and_dtype[1])
            dist.recv(received, owner, group=group)
            return received
        return None


@contextmanager
def evaluation(
    model: nn.Module, replicas: "Sequence[dist.ProcessGroup]", device: torch.device
) -> Iterator[None]:
    """Compute without gradients in evaluation mode, with the model that a checkpoint would keep."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        devices = [device] if device.type == "cuda" else []
        # Layers that also draw random numbers in evaluation mode must not change what the training
        # draws next.
        with torch.no_grad(), torch.random.fork_rng(devices), averages_of_first(model, replicas):
            yield
    finally:
        # One by one: modules that the user keeps in evaluation mode, such as a frozen part, stay in
        # it.
        for module, training in modes.items():
            module.training = training


def means(
    session: Session,
    engine: Engine,
    batches: Iterable[Any],
    metrics: Mapping[str, Callable[[Any, Any], Any]],
) -> dict[str, float]:
    """Return each metric's mean over all rows.

    Every rank must call this function, with equally many batches.
    """
    functions = list(metrics.values())
    total = no_sums(functions)
    for batch in batches:
        slice_sums = engine.metric_sums(Batch.of(batch), functions)
        # A rank without a row of its own computes a row of another rank.
        if session.share is None or session.share > 0:
            total += slice_sums
    if session.cpu_group is not None:
        # Sums and counts in one message, in float64: the mean is then exact however the rows lie
        # over the ranks.
        dist.all_reduce(total, group=session.cpu_group)
    empty = [
        name for name, (_, divisor) in zip(metrics, total.tolist(), strict=True) if divisor == 0
    ]
    if empty:
        raise InvalidInput(
            f"training.evaluate: {empty[0]} has no mean, since what it divides by adds up to 0"
        )
    return {
        name: value / divisor
        for name, (value, divisor) in zip(metrics, total.tolist(), strict=True)
    }


@contextmanager
def _filled_groups(optimizer: Optimizer) -> Iterator[int]:
    """Hide the groups that have no parameter on this rank; yield the number of the others.

    Torch's functions do not expect such groups, but a scheduler counts on all.
    """
    groups = optimizer.param_groups
    optimizer.param_groups = [group for group in groups if group["params"]]
    try:
        yield len(optimizer.param_groups)
    finally:
        # Loading a state puts new groups in the place of the old ones.
        filled = iter(optimizer.param_groups)
        optimizer.param_groups = [next(filled) if group["params"] else group for group in groups]
