"""Gradients of sharded parameters that no rank has used in a step.

Ranks that share a reduction need equally many gradients, so torch gives zeros to parameters that a
rank has not used. A gradient of zeros is not the same as none: momentum and weight decay would
still change the parameter. DDP keeps account of this itself.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from raysm.errors import InvalidRequest


class UnusedParameters:
    """Removes the gradients of parameters that no rank has used.

    Args:
        model: Whose blocks are sharded already.
        group: All ranks that have parts of the model, for messages of the CPU.

    Raises:
        InvalidRequest: This version of torch cannot reduce different gradients.
    """

    def __init__(self, model: FSDPModule, group: "dist.ProcessGroup | None") -> None:
        if not hasattr(model, "set_reduce_scatter_unused_params"):
            raise InvalidRequest(
                f"unused_parameters: torch {torch.__version__} cannot shard a model of which ranks "
                "use different parameters; use torch 2.13 or newer, or DDP (shard=1, tensor=1)"
            )
        model.set_reduce_scatter_unused_params(True)
        self._group = group
        assert isinstance(model, nn.Module)
        self._parameters = list(model.parameters())
        self._used = torch.zeros(len(self._parameters), dtype=torch.uint8)
        self._watched: dict[int, torch.Tensor] = {}
        numbers = {id(parameter): number for number, parameter in enumerate(self._parameters)}
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.register_forward_pre_hook(self._watcher(module, numbers))

    def _watcher(self, unit: nn.Module, numbers: dict[int, int]) -> Callable[..., None]:
        places = [
            (module, name, numbers[id(parameter)])
            for module in _modules_of_unit(unit)
            for name, parameter in module.named_parameters(recurse=False)
        ]

        def watch(module: nn.Module, inputs: Any) -> None:
            # The whole parameters, which torch makes in the first forward pass, and keeps.
            for owner, name, number in places:
                whole = getattr(owner, name)
                if whole.requires_grad and self._watched.get(number) is not whole:
                    self._watched[number] = whole
                    whole.register_post_accumulate_grad_hook(self._marker(number))

        return watch

    def _marker(self, number: int) -> Callable[[torch.Tensor], None]:
        def mark(parameter: torch.Tensor) -> None:
            self._used[number] = 1

        return mark

    def remove_gradients(self, *, is_spare: bool) -> None:
        """Leave the parameters that no rank has used since the last call without a gradient.

        Every rank must call this method, after the last backward pass of a step. Uses of a rank
        with only a spare row do not count.
        """
        used = torch.zeros_like(self._used) if is_spare else self._used.clone()
        self._used.zero_()
        if self._group is not None:
            dist.all_reduce(used, dist.ReduceOp.MAX, group=self._group)
        for parameter, is_used in zip(self._parameters, used.tolist(), strict=True):
            if not is_used:
                parameter.grad = None


def _modules_of_unit(unit: nn.Module) -> list[nn.Module]:
    """Return the modules whose parameters are gathered together with this one's own."""
    found = [unit]
    for child in unit.children():
        if not isinstance(child, FSDPModule):
            found += _modules_of_unit(child)
    return found
