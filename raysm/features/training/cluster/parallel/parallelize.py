"""Cut a model over the ranks of a layout: stages, tensors, shards, replicas.

Torch's own functions make each cut, in the order of PyTorch's own recipes: stages first, then
tensors within a stage, then recomputation of blocks, then shards or replicas around it all.
Parameters keep their original names.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.degrees import Layout, Parallel
from raysm.features.training.cluster.engines.full_model import FullModel, averages_kept
from raysm.features.training.cluster.engines.mean_loss import MeanLoss
from raysm.features.training.cluster.engines.pipeline import (
    Pipeline,
    PipelineRank,
    Stage,
    stage_numbers,
)
from raysm.features.training.cluster.engines.unused import UnusedParameters
from raysm.features.training.cluster.loop.session import Session
from raysm.features.training.cluster.parallel.blocks import Blocks, block_names, compile_blocks
from raysm.features.training.cluster.parallel.deferred import Weights
from raysm.features.training.cluster.parallel.optimizers import Groups, check_placed
from raysm.features.training.cluster.parallel.stages import (
    Stages,
    check_ties,
    copies_here,
    find_ties,
    partition_stages,
)
from raysm.features.training.cluster.parallel.tensors import Plan, partition_tensors, resolve_plan
from raysm.features.training.cluster.parallel.trainer import RankModel


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallelizer:
    session: Session
    parallel: Parallel
    layout: Layout
    loss: MeanLoss
    blocks: Blocks = None
    precision: torch.dtype | None = None
    plan: Plan | None = None
    accumulate: int = 1
    compiles: bool = False
    weights: Weights | None = None
    """Of a model without memory; None if every rank has the whole model."""

    @property
    def is_plain(self) -> bool:
        return self.layout.data == self.layout.world_size

    def apply(self, model: nn.Module, groups: Groups) -> RankModel:
        """Cut the model, which is complete and the same on every rank.

        ``groups`` are the optimizer's groups. If the model cannot be cut like this, every rank
        raises InvalidRequest, and nothing has been changed.
        """
        blocks = block_names(model, self.blocks if isinstance(self.blocks, str) else None)
        if not blocks and (self.parallel.optimize == "memory" or self.parallel.offload):
            raise InvalidRequest(
                f"{type(model).__name__} has no Sequential or ModuleList whose children could be "
                "computed again or offloaded; name one by blocks=…, or leave out optimize='memory' "
                "and offload"
            )
        if self.is_plain:
            self._recompute(model, blocks)
            return self._replicate(model)
        plan = self._checked_plan(model)
        stages = self._stages(model) if self.layout.pipeline > 1 else None
        if stages is not None:
            parameters = [
                stage.named_parameters(remove_duplicate=False) for stage in stages.modules()
            ]
            check_placed(groups, (name for of_stage in parameters for name, _ in of_stage))
            check_ties(find_ties(stages), self.layout, plan)
        if self.weights is None:
            self._send_whole(model)
        mesh = self.make_mesh()
        if stages is None:
            wrapped = self._wrap(model, blocks, plan, mesh)
            unused = None
            if self.parallel.unused_parameters and isinstance(wrapped, FSDPModule):
                unused = UnusedParameters(wrapped, self.session.cpu_group)
            engine = FullModel(
                model=wrapped,
                loss=self.loss,
                session=self.session,
                precision=self.precision,
                # The ranks of a tensor group have the same rows, whose loss counts once.
                counts=self.layout.coordinates(self.session.rank).tensor == 0,
                accumulate=self.accumulate,
                keeps_gradients=self.parallel.keep_gradients,
                unused=unused,
            )
            cut = RankModel(
                model=wrapped, parts=model, engine=engine, replicas=self._replicas(mesh)
            )
        else:
            cut = self._in_stages(stages, blocks, plan, mesh)
        if self.weights is not None:
            self.weights.fill(cut.parts)
        return cut

    def make_mesh(self) -> DeviceMesh:
        return init_device_mesh(
            self.session.device.type, self.layout.shape, mesh_dim_names=self.layout.dimensions
        )

    def _send_whole(self, model: nn.Module) -> None:
        """Send rank 0's weights before anything is cut: later no rank has the whole weights."""
        for tensor in (*model.parameters(), *model.buffers()):
            # NCCL, which connects GPUs, cannot send from the CPU's memory.
            group = self.session.cpu_group if tensor.device.type == "cpu" else None
            message = tensor.detach().contiguous()
            dist.broadcast(message, 0, group=group)
            if message.data_ptr() != tensor.data_ptr():  # laid out otherwise: channels last
                tensor.detach().copy_(message)

    def _replicas(self, mesh: DeviceMesh) -> "tuple[dist.ProcessGroup, ...]":
        # Broadcast over shards first and over replicas second, so that all get the first shard's of
        # the first replica.
        return tuple(
            mesh[name].get_group() for name in ("shard", "data") if getattr(self.layout, name) > 1
        )

    def _in_stages(
        self, stages: Stages, blocks: Sequence[str], plan: Plan, mesh: DeviceMesh
    ) -> RankModel:
        coordinates = self.layout.coordinates(self.session.rank)
        # Found while the model is whole, because a stage has lost the ties and names of other
        # ranks.
        ties = find_ties(stages)
        names = list(stages.model.state_dict())
        inner = [
            stages.module(number) for number in stage_numbers(self.parallel, coordinates.pipeline)
        ]
        outer = [Stage(module, self.session.device, self.precision) for module in inner]
        for stage in outer:
            self._wrap(stage, blocks, plan, mesh)
        parts = _merge(inner, names, [tie.names for tie in ties])
        copies = copies_here(ties, parts, self.layout, self.session.rank)
        pipeline = Pipeline(
            outer,
            parallel=self.parallel,
            rank=PipelineRank(
                number=coordinates.pipeline,
                group=mesh["pipeline"].get_group(),
                # With shards, FSDP also averages the gradients over the replicas.
                replicas=mesh["data"].get_group()
                if self.layout.data > 1 and self.layout.shard == 1
                else None,
                counts=coordinates.tensor == 0,
                tied=[(each.parameters, each.group) for each in copies],
            ),
            loss=self.loss,
            session=self.session,
            precision=self.precision,
        )
        # The first rank that has a copy counts it: each name of a checkpoint is written once, and
        # so is each norm.
        return RankModel(
            model=nn.ModuleList(outer),
            parts=parts,
            engine=pipeline,
            stages=mesh["pipeline"].get_group(),
            copies=tuple(
                parameter for each in copies if not each.is_first for parameter in each.parameters
            ),
            replicas=self._replicas(mesh),
        )

    def _replicate(self, model: nn.Module) -> RankModel:
        session = self.session
        model.to(session.device)
        wrapped = model
        finds_unused = self.parallel.unused_parameters
        options: dict[str, Any] = {"find_unused_parameters": True} if finds_unused else {}
        if session.replicate is not None:
            wrapped = session.replicate(model, options)
        # DDP refuses a model that has nothing to train.
        elif dist.is_initialized() and any(
            parameter.requires_grad for parameter in model.parameters()
        ):
            wrapped = DistributedDataParallel(
                model,
                device_ids=[session.device] if session.device.type == "cuda" else None,
                **options,
            )
        trained = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        engine = FullModel(
            model=wrapped,
            loss=self.loss,
            session=session,
            precision=self.precision,
            averaged={} if wrapped is model or finds_unused else trained,
            inner=model,
            accumulate=self.accumulate,
        )
        world = dist.group.WORLD if dist.is_initialized() else None
        return RankModel(
            model=wrapped, parts=model, engine=engine, replicas=() if world is None else (world,)
        )

    def _checked_plan(self, model: nn.Module) -> Plan:
        degree = self.layout.tensor
        if degree == 1:
            return {}
        plan = resolve_plan(model, self.plan, degree)
        whole = [
            name
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and name not in plan
        ]
        self.session.say(
            f"tensors cut: {_shown(plan)}; linear layers whole on every worker: "
            f"{_shown(whole) or 'none'}"
        )
        return plan

    def _stages(self, model: nn.Module) -> Stages:
        stages = partition_stages(model, self.parallel.stages, self.blocks)
        for number, start in enumerate(("the beginning", *stages.starts)):
            rank = number % self.layout.pipeline + 1
            self.session.say(
                f"stage {number + 1} of {len(stages)}, on pipeline rank {rank}: from {start}"
            )
        return stages

    def _wrap(
        self, module: nn.Module, blocks: Sequence[str], plan: Plan, mesh: DeviceMesh
    ) -> nn.Module:
        inner = module.part if isinstance(module, Stage) else module
        if plan:
            partition_tensors(inner, plan, mesh["tensor"])
        self._recompute(inner, blocks)
        # FSDP would gather frozen weights in each step, for nothing that is learned.
        if not any(parameter.requires_grad for parameter in inner.parameters()):
            return self._place(module)
        # DDP does not support cut tensors: there, replicas are shards over groups of one. Replicas
        # of a pipeline average their gradients after all micro-batches, when DDP could not overlap
        # it with computing.
        if self.layout.shard > 1 or (
            self.layout.tensor > 1 and self.layout.data > 1 and self.layout.pipeline == 1
        ):
            self._shard(
                module,
                inner,
                blocks,
                mesh["data", "shard"] if self.layout.data > 1 else mesh["shard"],
            )
        return self._place(module)

    def _place(self, module: nn.Module) -> nn.Module:
        device = self.session.device
        is_offloaded = self.parallel.offload_weights and isinstance(module, FSDPModule)
        if self.weights is not None:
            return self.weights.place(module, torch.device("cpu") if is_offloaded else device)
        if not is_offloaded:
            return module.to(device)
        for inner in module.modules():
            for name, buffer in inner.named_buffers(recurse=False):
                inner._buffers[name] = buffer.to(device)
        return module

    def _shard(
        self, outer: nn.Module, inner: nn.Module, blocks: Sequence[str], mesh: DeviceMesh
    ) -> None:
        # A stage's parameters are gathered once for all its micro-batches.
        again = self.layout.pipeline == 1
        offloads = self.parallel.offload_weights
        offload = (
            CPUOffloadPolicy(pin_memory=self.session.device.type == "cuda")
            if offloads
            else OffloadPolicy()
        )
        options: dict[str, Any] = {
            "mesh": mesh,
            "reshard_after_forward": again,
            "offload_policy": offload,
        }
        modules = dict(inner.named_modules())
        for name in blocks:
            # Tied parameters must be in one FSDP unit: blocks that share some belong to the unit of
            # the whole model.
            if (
                name in modules
                and any(True for _ in modules[name].parameters())
                and not _shares(modules[name], inner)
            ):
                policy = self._policy(modules[name])
                fully_shard(modules[name], mp_policy=policy, **options)
        fully_shard(outer, mp_policy=self._policy(outer), **options)

    def _policy(self, module: nn.Module) -> MixedPrecisionPolicy:
        """Return the types in which parameters are sent.

        A module with running averages keeps its own type.
        """
        averages = any(isinstance(inner, _NormBase) for inner in module.modules())
        return MixedPrecisionPolicy(
            param_dtype=None if averages else self.precision,
            reduce_dtype=torch.float32 if self.precision else None,
        )

    def _recompute(self, module: nn.Module, blocks: Sequence[str]) -> None:
        if self.compiles:
            # Compiled inside the recomputed function: torch cannot compile a checkpoint that
            # restores running averages.
            compile_blocks(module, blocks)
        recompute = self.parallel.optimize == "memory"
        offload = self.parallel.offload
        if not (recompute or offload):
            return
        modules = dict(module.named_modules())
        for name in blocks:
            if name in modules:
                _save_memory(modules[name], recompute, offload)


def _shares(block: nn.Module, model: nn.Module) -> bool:
    inside, all_names = (
        Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))
        for module in (block, model)
    )
    return any(all_names[parameter] > count for parameter, count in inside.items())


def _shown(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in names))


def _save_memory(block: nn.Module, recompute: bool, offload: bool) -> None:
    # Replace the method and do not wrap the module: names stay as they are.
    forward = block.forward

    def light(*args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=torch.cuda.is_available()) if offload else nullcontext():
            if not recompute:
                return forward(*args, **kwargs)
            # Torch's default, the reentrant one, takes neither a context_fn nor keyword arguments.
            return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), averages_kept(block)

    block.forward = light


def _merge(
    modules: Sequence[nn.Module], names: Sequence[str], tied: Iterable[Sequence[str]] = ()
) -> nn.Module:
    """Return one module that has the tensors of several modules by their names.

    The order is that of ``names``, the names of the whole model. A parameter that is ``tied`` to
    one of another stage has all names of the tie: so a checkpoint of the optimizer knows it by the
    same name in every mode.
    """
    tensors = {
        name: tensor
        for module in modules
        for name, tensor in module.state_dict(keep_vars=True).items()
    }
    for alike in tied:
        saved = [name for name in alike if name in tensors]
        tensors |= dict.fromkeys(alike, tensors[saved[0]]) if saved else {}
    places = {name: place for place, name in enumerate(names)}
    root = nn.Module()
    for name in sorted(tensors, key=places.__getitem__):
        *path, leaf = name.split(".")
        parent = root
        for part in path:
            if part not in parent._modules:
                parent.add_module(part, nn.Module())
            parent = parent.get_submodule(part)
        if isinstance(tensors[name], nn.Parameter):
            parent.register_parameter(leaf, tensors[name])
        else:
            parent.register_buffer(leaf, tensors[name])
    return root
