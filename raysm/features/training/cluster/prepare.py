"""Make a plain model and its optimizer train together over all workers; step and evaluate it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import Dataset, default_collate

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.checkpoint.checkpoints import Checkpoints, attach_checkpoints
from raysm.features.training.cluster.degrees import Layout, Parallel
from raysm.features.training.cluster.engines.mean_loss import Divisor, Loss, MeanLoss
from raysm.features.training.cluster.loop.learning_rate import attach_rate, check_scheduler
from raysm.features.training.cluster.loop.random_state import seed_all
from raysm.features.training.cluster.loop.sampler import one_pass
from raysm.features.training.cluster.loop.session import current
from raysm.features.training.cluster.loop.step_loss import StepLoss
from raysm.features.training.cluster.measure import attach_measuring
from raysm.features.training.cluster.parallel.blocks import Blocks, check_compiler
from raysm.features.training.cluster.parallel.deferred import (
    Weights,
    fill_whole,
    make_without_weights,
)
from raysm.features.training.cluster.parallel.optimizers import (
    is_stepped,
    names_of_groups,
    rebind,
    renew,
)
from raysm.features.training.cluster.parallel.parallelize import Parallelizer
from raysm.features.training.cluster.parallel.tensors import Plan
from raysm.features.training.cluster.parallel.trainer import Trainer
from raysm.features.training.request import FIRST_CAPABILITY_WITH_BF16, Precision


def prepare(
    model: nn.Module | Callable[[], nn.Module],
    optimizer: Optimizer | Callable[[nn.Module], Optimizer],
    parallel: Parallel | None = None,
    *,
    loss: Loss,
    divisor: Divisor | None = None,
    scheduler: Any = None,
    accumulate: int = 1,
    blocks: Blocks = None,
    plan: Plan | None = None,
    precision: Precision | None = None,
    compile: bool = False,
    max_norm: float | None = None,
    checkpoints: Checkpoints | None = None,
    weights: str | Path | None = None,
    seed: int = 0,
) -> tuple[nn.Module, Optimizer]:
    """Make model and optimizer train together over all workers.

    All workers get the weights of rank 0, or those of the newest whole checkpoint. Call it once,
    before the first step.

    Args:
        model: On the CPU or on this worker's device; the same architecture on every rank. Of a
            model that is larger than a worker's memory, a function that returns it: all workers
            but the first then make its parameters without memory, and get only their shares.
        optimizer: Over the model's parameters; it has not been stepped. If the model is a function,
            a function of the model that returns the optimizer.
        parallel: How to cut the training over the workers; None replicates the model on each (DDP).
        loss: (output, target) -> the mean over the rows, or over what ``divisor`` returns.
        divisor: target -> what the mean of the loss divides by, if that is not the number of rows:
            the number of tokens that are no padding, the sum of the class weights. The loss of a
            batch is then the same over any number of workers, pieces and micro-batches.
        scheduler: A scheduler of the optimizer's rate, or a function of the optimizer that returns
            one if the model is a function. It is stepped after every step and kept in
            checkpoints. One that takes a metric (``ReduceLROnPlateau``) is only kept: step it with
            a value of ``training.evaluate``.
        accumulate: A worker computes its slice of a batch in this many pieces, one after the other,
            and adds up their gradients: the same step with the activations of one piece in memory.
            A pipeline has micro-batches instead.
        blocks: Name of the Sequential or ModuleList whose children are the units in which the model
            is cut into stages, sharded, and computed again; or the names of the modules at which
            the second, third … stage begins. None takes the model itself, if it is a Sequential,
            else the largest.
        plan: Which modules are cut over the workers of ``tensor``: name -> 'colwise', 'rowwise' or
            a ParallelStyle of torch; ``*`` in a name is any number. None takes the model's own
            ``tp_plan``, as Hugging Face models have it.
        precision: ``bf16`` computes in bfloat16 and keeps weights and sums of gradients in float32.
            None is that of the DataParallel, elsewhere ``fp32``.
        compile: Compile the blocks with ``torch.compile``: the first steps take longer, the others
            less time. It needs a C++ compiler on CPUs, and triton on GPUs.
        max_norm: Gradients whose 2-norm over the whole model is larger are scaled down to it, in
            every mode; None leaves them as they are.
        checkpoints: When to save, and what to keep; None is the default ``Checkpoints`` in a job
            that keeps them, and no checkpoints elsewhere.
        weights: Folder of safetensors files with the parameters, by their names in the model. Each
            worker reads only its share. The model must be a function.
        seed: Seed of the random numbers from here on (dropout); ranks with different data or layers
            draw different ones.

    Returns:
        The model as it is wrapped, and the optimizer.

    Raises:
        InvalidRequest: The parts do not fit together; nothing has been changed.
        InvalidInput: The files of ``weights`` lack a parameter, or have another shape of it.
    """
    session = current()
    parallel = parallel or Parallel()
    if session.trainer is not None:
        raise InvalidRequest("training.prepare was called already; one process trains one model")
    precision = precision or session.precision
    _check(parallel, precision, accumulate, compile, max_norm, divisor)
    if session.device.type == "cuda":
        check_capability(precision, torch.cuda.get_device_capability(session.device))
    if compile:
        check_compiler(session.device)
    layout = parallel.layout(session.world_size)
    layout.check_hosts(session.hosts, parallel.workers_per_instance)
    source = None
    if not isinstance(model, nn.Module):
        model, source = _make(model, weights, layout)
        optimizer = optimizer(model) if callable(optimizer) else optimizer
        scheduler = scheduler(optimizer) if callable(scheduler) else scheduler
    elif weights is not None:
        raise InvalidRequest(
            f"weights={str(weights)!r}: each worker reads only its share, so the model must be a "
            "function: prepare(lambda: Model(), lambda model: AdamW(model.parameters()), …)"
        )
    if not isinstance(optimizer, Optimizer):
        raise InvalidRequest(
            f"the optimizer is a {type(optimizer).__name__}; give an optimizer, or, if the model "
            "is a function, a function of the model that returns one"
        )
    if scheduler is not None:
        check_scheduler(scheduler, optimizer)
    if is_stepped(optimizer):
        raise InvalidRequest(
            "training.prepare: the optimizer has been stepped; call prepare before the first step"
        )
    # Before anything is cut: afterwards no rank knows all names, or which group a parameter was in.
    names = tuple(model.state_dict())
    groups = names_of_groups(optimizer, model)
    mean_loss = MeanLoss(loss, divisor)
    parallelizer = Parallelizer(
        session=session,
        parallel=parallel,
        layout=layout,
        loss=mean_loss,
        blocks=blocks,
        precision=None if precision == "fp32" else torch.bfloat16,
        compiles=compile,
        plan=plan,
        accumulate=accumulate,
        weights=source,
    )
    cut = parallelizer.apply(model, groups)
    # Replicas keep the model's own parameters, which are those that the optimizer has.
    if not parallelizer.is_plain:
        rebind(optimizer, groups, cut.parts, mixed=layout.tensor > 1)
    # After the cut: a state that the constructor made (Adagrad) is that of the parameters as they
    # were.
    renew(optimizer)
    # Gradients from before (of a search for a good rate) belong to no step of this training.
    cut.parts.zero_grad(set_to_none=True)
    trainer = Trainer(
        session=session,
        parallel=parallel,
        layout=layout,
        names=names,
        optimizer=optimizer,
        scheduler=scheduler,
        loss=mean_loss,
        max_norm=max_norm,
        **{field.name: getattr(cut, field.name) for field in fields(cut)},
    )
    # Set only now, so that prepare may be called again after an error.
    session.trainer = trainer
    attach_measuring(session)
    workers = "1 worker" if session.world_size == 1 else f"{session.world_size} workers"
    session.say(f"training on {workers}\n{layout.map(session.hosts)}")
    # Ranks of one tensor group compute the same values, dropout's among them.
    pipeline_rank = layout.coordinates(session.rank).pipeline
    seed_all(seed + layout.data_rank(session.rank) * layout.pipeline + pipeline_rank)
    # Before the checkpoints, which keep the plain rate.
    attach_rate(session, optimizer)
    attach_checkpoints(session, trainer, checkpoints)
    return trainer.model, optimizer


def _make(
    make_model: Callable[[], nn.Module], weights: str | Path | None, layout: Layout
) -> tuple[nn.Module, Weights | None]:
    if not callable(make_model):
        raise InvalidRequest(
            f"the model is a {type(make_model).__name__}; it must be a torch.nn.Module, or a "
            "function that returns one"
        )
    session = current()
    if weights is not None and not any(Path(weights).glob("*.safetensors")):
        raise InvalidRequest(f"weights: {weights} has no safetensors files")
    # Replicas are whole: each worker makes its own.
    if layout.data < layout.world_size:
        return make_without_weights(make_model, session, weights)
    model = make_model()
    if weights is not None:
        fill_whole(model, session, weights)
    return model, None


def _check(
    parallel: Parallel,
    precision: str,
    accumulate: int,
    compiles: bool,
    max_norm: float | None,
    divisor: Any,
) -> None:
    if divisor is not None and not callable(divisor):
        raise InvalidRequest(
            f"divisor is a {type(divisor).__name__}; it must be a function of the target that "
            "returns a number, or None"
        )
    if precision not in get_args(Precision):
        raise InvalidRequest(f"precision is {precision!r}; it must be 'fp32' or 'bf16'")
    # Written so that NaN is refused, too.
    if max_norm is not None and not max_norm > 0:
        raise InvalidRequest(
            f"max_norm is {max_norm!r}; it must be above 0, or None to leave gradients as they are"
        )
    # True is an int to Python, and would be 1 piece.
    if type(accumulate) is not int or accumulate < 1:
        raise InvalidRequest(f"accumulate is {accumulate!r}; it must be a whole number from 1")
    if accumulate > 1 and parallel.pipeline > 1:
        raise InvalidRequest(
            f"accumulate={accumulate}: a pipeline adds up the gradients of its micro-batches "
            "already; leave it out, and give Parallel more of them (microbatches is "
            f"{parallel.microbatch_count})"
        )
    if compiles and parallel.tensor > 1:
        # Compiled code would not run the hooks that cut and gather tensors inside a block.
        raise InvalidRequest(
            f"compile=True with tensor={parallel.tensor}: blocks whose tensors are cut are not "
            "compiled; leave compile out, or cut by shard or pipeline"
        )


def check_capability(precision: str, capability: tuple[int, int]) -> None:
    """Check that a GPU of this compute capability computes in a precision.

    On an older GPU torch would compute in bfloat16 without the fast units, many times slower.

    Raises:
        InvalidRequest: It does not.
    """
    if precision == "bf16" and capability < FIRST_CAPABILITY_WITH_BF16:
        raise InvalidRequest(
            "precision='bf16' needs a GPU of compute capability "
            f"{'.'.join(map(str, FIRST_CAPABILITY_WITH_BF16))}, and this one has "
            f"{'.'.join(map(str, capability))}: use precision='fp32', or an instance type from g5 "
            "or p4d on"
        )


def step(batch: Any) -> StepLoss:
    """Train on this worker's slice of a batch: forward, backward, optimizer, scheduler.

    Args:
        batch: (input, …, target); what ``training.batches`` yields.

    Returns:
        The mean loss of the whole batch, the same on every rank in every mode: a number that stays
        on the device until it is read. Reading it, as ``training.report`` and ``print`` do, waits
        for the device, so read it every few steps on a GPU. ``float(loss)`` is a plain float.

    The first step also compares the loss of the batch with the mean of the losses of its halves,
    for which it calls the loss three more times, and prints a sentence if they differ.

    Raises:
        InvalidRequest: ``prepare`` has not been called.
        InvalidInput: The batch is no tuple of inputs and target, or does not divide into
            micro-batches; or what the mean of the loss divides by is not above 0.
    """
    trainer = current().trainer
    if trainer is None:
        raise InvalidRequest("training.step was called before training.prepare")
    loss: StepLoss = trainer.step(batch)
    return loss


def evaluate(
    dataset: Dataset[Any] | Sequence[Any],
    *,
    batch_size: int,
    metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    loader_workers: int = 0,
    collate: Callable[[list[Any]], Any] = default_collate,
) -> dict[str, float]:
    """Return the loss, and other metrics, of the model as it is now: exact means over a data set.

    The mean is over rows, or over what a divisor counts. Every worker must call it. The workers
    share the rows, and each row counts once. It computes in evaluation mode and in the precision of
    the training, and changes neither random numbers nor running averages nor the position in the
    data. Replicas whose batch norms have averages of their own use those of the first, which
    checkpoints keep. ::

        for epoch in training.epochs(10):
            for batch in training.batches(dataset, batch_size=256):
                training.step(batch)
            means = training.evaluate(validation, batch_size=1024, metrics={"accuracy": accuracy})
            training.report(**{f"validation_{name}": value for name, value in means.items()})

    Args:
        dataset: Has ``len()`` and ``[row]``, and is the same on every instance; read in its own
            order.
        batch_size: Rows over all workers at a time, any number.
        metrics: Name -> (output, target) -> the mean over the rows that it gets, one number; or the
            pair (mean, what it divides by), as for the accuracy over tokens that are no padding.
        loader_workers: Processes of each worker that read ahead; 0 reads in the worker itself.
        collate: Makes a batch of samples, as for ``training.batches``.

    Returns:
        ``loss``, by the loss and divisor of ``training.prepare``, and each metric, by name; the
        same on every worker.

    Raises:
        InvalidRequest: ``prepare`` has not been called, a number is out of range, a metric is
            called ``loss``, or does not return one number.
        InvalidInput: What the mean of the loss or of a metric divides by adds up to 0.
    """
    session = current()
    if session.trainer is None:
        raise InvalidRequest("training.evaluate was called before training.prepare")
    metrics = metrics or {}
    # Checked before the first batch: one of two values with one name would be lost, after minutes
    # of computing.
    if "loss" in metrics:
        raise InvalidRequest(
            "training.evaluate: 'loss' is that of training.prepare, and returned in any case; name "
            "the metric otherwise"
        )
    batches = one_pass(
        session, dataset, batch_size=batch_size, loader_workers=loader_workers, collate=collate
    )
    found: dict[str, float] = session.trainer.evaluate(batches, metrics)
    return found
