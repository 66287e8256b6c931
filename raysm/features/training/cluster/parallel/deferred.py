"""Models larger than the memory of a worker: made without weights, cut, and then filled.

Every worker makes the model with parameters that have shapes and no memory. After the cut it gives
memory to its share alone, and fills it: from safetensors files, of which it reads only what it
needs, or from rank 0, which makes the model with its weights and sends one tensor at a time.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from raysm.errors import InvalidInput, InvalidRequest
from raysm.features.training.cluster.loop.session import Session

SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class _Tensor:
    names: tuple[str, ...]
    """All names in the model; a shared parameter has several."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    is_parameter: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """The weights of a model that was made without them."""

    session: Session
    tensors: tuple[_Tensor, ...]
    """Of the uncut model, the same on every rank."""
    values: Mapping[str, torch.Tensor]
    """What rank 0 sends, by name; empty elsewhere."""
    folder: Path | None
    """With the parameters as safetensors files; None lets rank 0 send all."""

    def place(self, module: nn.Module, parameters_on: torch.device) -> nn.Module:
        """Give a module memory, buffers on this rank's device; parameters have no values yet."""

        def placed(tensor: torch.Tensor) -> torch.Tensor:
            is_parameter = isinstance(tensor, nn.Parameter)
            device = parameters_on if is_parameter else self.session.device
            if tensor.is_meta:
                return torch.empty_like(tensor, device=device)
            return tensor.to(device)

        future = torch.__future__
        before = future.get_swap_module_params_on_conversion()
        # Swapped, because a parameter that two modules share must stay one.
        future.set_swap_module_params_on_conversion(True)
        try:
            module._apply(placed)  # type: ignore[no-untyped-call]
        finally:
            future.set_swap_module_params_on_conversion(before)
        return module

    def fill(self, parts: nn.Module) -> None:
        """Fill the parameters and buffers that this rank has. Every rank must call it."""
        read = frozenset[str]()
        if self.folder is not None:
            read = _read(parts, self.tensors, self.folder, self.session)
        own = _named_tensors(parts)
        for tensor in self.tensors:
            if read.isdisjoint(tensor.names):
                self._send(tensor, next((own[name] for name in tensor.names if name in own), None))

    def _send(self, tensor: _Tensor, share: torch.Tensor | None) -> None:
        device = self.session.device
        if self.session.rank == 0:
            whole = self.values[tensor.names[0]].detach().to(device).contiguous()
        else:
            whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        dist.broadcast(whole, 0)
        if share is not None:
            with torch.no_grad():
                _copy_share(whole, share)


def make_without_weights(
    make_model: Callable[[], nn.Module], session: Session, folder: str | Path | None
) -> tuple[nn.Module, Weights]:
    """Return a model whose parameters have no memory, and what will fill it.

    Args:
        make_model: Called on every rank, and on rank 0 once more if there is no folder.
        session: This rank's.
        folder: With the parameters as safetensors files.

    Raises:
        InvalidRequest: ``make_model`` returns another model each time.
    """
    makes_whole = folder is None and session.rank == 0
    whole = make_model() if makes_whole else None
    with parameters_without_memory():
        model = make_model()
    tensors = tuple(_describe(model))
    is_other = whole is not None and tuple(_describe(whole)) != tensors
    # Every rank raises, because the others would wait for the weights.
    if session.first_rank(is_other) is not None:
        raise InvalidRequest(
            "prepare: the function of the model returned models with different parameters; it must "
            "return the same each time"
        )
    source = model if whole is None else whole
    values = _named_tensors(source) if session.rank == 0 else {}
    weights = Weights(
        session=session,
        tensors=tensors,
        values=values,
        folder=None if folder is None else Path(folder),
    )
    return model, weights


def fill_whole(model: nn.Module, session: Session, folder: str | Path) -> None:
    """Fill a model that this rank has whole from safetensors files."""
    _read(model, tuple(_describe(model)), Path(folder), session)


def _read(
    parts: nn.Module, tensors: Iterable[_Tensor], folder: Path, session: Session
) -> frozenset[str]:
    """Read this rank's shares of tensors from files; return the names of all that are in them.

    Raises:
        InvalidInput: The files lack a parameter, or have it with another shape.
    """
    reader = HuggingFaceStorageReader(str(folder))
    # The reader knows tensors alone.
    stored: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
    shapes = {name: tuple(tensor.size) for name, tensor in stored.items()}
    chosen: dict[str, str] = {}
    for tensor in tensors:
        name = next((name for name in tensor.names if name in shapes), None)
        if name is not None and shapes[name] == tensor.shape:
            chosen |= dict.fromkeys(tensor.names, name)
        elif name is not None:
            raise InvalidInput(
                f"weights: {name} has the shape {shapes[name]} in {folder}, and "
                f"{tensor.shape} in the model"
            )
        elif tensor.is_parameter:
            raise InvalidInput(
                f"weights: no safetensors file in {folder} has {tensor.names[0]}; they "
                f"have {_shown(shapes)}"
            )
    if unread := shapes.keys() - chosen.keys():
        session.say(f"weights: the model has no {_shown(sorted(unread))}: not read")
    state = {
        chosen[name]: tensor.detach()
        for name, tensor in _named_tensors(parts).items()
        if name in chosen
    }
    with warnings.catch_warnings():
        # Each rank reads alone on purpose.
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        load(state, storage_reader=reader, no_dist=True)
    return frozenset(chosen)


@contextmanager
def parameters_without_memory() -> Iterator[None]:
    """Let modules drop the memory of their parameters as soon as they have them.

    Buffers and other attributes keep theirs: constructors compute them, and no file has them.
    """
    register = nn.Module.register_parameter

    def register_without_memory(
        module: nn.Module, name: str, parameter: nn.Parameter | None
    ) -> None:
        if parameter is not None and not parameter.is_meta:
            attributes = parameter.__dict__
            trains = parameter.requires_grad
            parameter = type(parameter)(parameter.detach().to("meta"), requires_grad=trains)
            parameter.__dict__.update(attributes)
        register(module, name, parameter)

    module_class: Any = nn.Module
    module_class.register_parameter = register_without_memory
    try:
        yield
    finally:
        module_class.register_parameter = register


def _describe(model: nn.Module) -> Iterator[_Tensor]:
    names: dict[int, list[str]] = {}
    tensors = _named_tensors(model)
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), []).append(name)
    for alike in names.values():
        tensor = tensors[alike[0]]
        is_parameter = isinstance(tensor, nn.Parameter)
        yield _Tensor(tuple(alike), tuple(tensor.shape), tensor.dtype, is_parameter)


def _named_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    parameters: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))


def _copy_share(whole: torch.Tensor, share: torch.Tensor) -> None:
    if not isinstance(share, DTensor):
        share.copy_(whole)
        return
    shape, offsets = compute_local_shape_and_global_offset(
        whole.shape, share.device_mesh, share.placements
    )
    here = tuple(slice(begin, begin + length) for begin, length in zip(offsets, shape, strict=True))
    share.to_local().copy_(whole[here])


def _shown(names: Collection[str]) -> str:
    shown = ", ".join([*names][:SHOWN_NAMES])
    return shown if len(names) <= SHOWN_NAMES else f"{shown} and {len(names) - SHOWN_NAMES} more"
