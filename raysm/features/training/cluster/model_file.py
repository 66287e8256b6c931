"""The final model as one file, ``model.safetensors``, which rank 0 writes.

The file has the plain ``state_dict`` in every mode of parallelism.
"""

from collections.abc import Mapping
from pathlib import Path

import torch

from raysm.core.protocol.result import MODEL_FILE
from raysm.core.protocol.store import replacing
from raysm.errors import InvalidRequest, MissingDependency
from raysm.features.training.cluster.loop.session import Session, current
from raysm.instance import environment

__all__ = ["MODEL_FILE", "save_model", "write"]


def save_model(folder: str | Path | None = None) -> Path | None:
    """Write the current model into ``model.safetensors``; every rank must call it.

    Args:
        folder: None is SM_MODEL_DIR, or ``model`` in the working folder outside of a job.

    Returns:
        The file on rank 0, None on the others.

    Raises:
        InvalidRequest: ``prepare`` has not been called.
        MissingDependency: safetensors is not installed.
    """
    session = current()
    if session.trainer is None:
        raise InvalidRequest("training.save_model was called before training.prepare")
    # Every rank takes part, because each may have parts of the model.
    tensors = session.trainer.full_state_dict()
    session.model_saved = True
    if session.rank != 0:
        return None
    path = write(tensors, _default(session) if folder is None else Path(folder))
    session.say(f"the model is saved: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return path


def write(tensors: Mapping[str, torch.Tensor], folder: Path) -> Path:
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise MissingDependency(
            "the model is saved by safetensors: add it to the requirements"
        ) from error
    path = folder / MODEL_FILE
    with replacing(path) as beside:
        mode = beside.stat().st_mode
        save_file(_apart(tensors), beside, metadata={"format": "pt"})
        # safetensors replaces the file by one that only its owner may read.
        beside.chmod(mode)
    return path


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors without shared memory.

    Tied weights are copied under each of their names, as state_dict has them.
    """
    used: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        whole = tensor.detach().contiguous()
        # safetensors refuses tensors that share memory, and would write a view's whole storage.
        address = whole.untyped_storage().data_ptr()
        apart[name] = (
            whole.clone()
            if address in used or whole.untyped_storage().nbytes() != whole.nbytes
            else whole
        )
        used.add(apart[name].untyped_storage().data_ptr())
    return apart


def _default(session: Session) -> Path:
    model_folder = environment.inherited().get("SM_MODEL_DIR")
    if model_folder:
        return Path(model_folder)
    return environment.base_paths().model if session.in_job else Path("model")
