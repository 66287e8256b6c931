"""The result of a training on the head: rank 0's model folder, and the manifest that describes it."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import ray
from ray.exceptions import RayError, RayTaskError

from raysm.bootstrap import environment
from raysm.bootstrap.environment import Environment
from raysm.bootstrap.ray_internals import BACKPRESSURE, spare_options
from raysm.contract.result import MODEL_FILE, TRAINING, Manifest, Measured, ResultFile
from raysm.contract.store import files_below, replacing, sha256_of
from raysm.errors import InstanceLost
from raysm.request import JobRequest
from raysm.workloads import folders, runner
from raysm.workloads.nodes import Node, only_on

PIECE_BYTES = 8 << 20
UNDER_WAY = 4


def download_model(node: Node, head: Environment, say: Callable[[str], None]) -> None:
    """Copy the model folder and the outputs of the workers on ``node`` into the head's model folder.

    Raises:
        InstanceLost: The instance went away before everything was copied.
    """
    if node.host == head.current_host:
        outputs = folders.save_outputs(head)
    else:
        # Without retries, because another instance has another folder, and no rank 0.
        read = ray.remote(num_cpus=0, max_retries=0)(_sent)
        stream = read.options(
            num_returns="streaming",
            scheduling_strategy=only_on(node.node_id),
            # Else the whole model would pile up in the head's object store.
            **spare_options(BACKPRESSURE, {"_generator_backpressure_num_objects": UNDER_WAY}),
        ).remote()
        try:
            outputs = ray.get(next(stream))
            write_pieces((ray.get(piece) for piece in stream), head.paths.model)
        # The task itself raised, an error of raysm or of the disk: no instance was lost.
        except RayTaskError:
            raise
        except RayError as error:
            raise InstanceLost(f"{node.host} lost, and rank 0's model with it") from error
    if outputs:
        say(f"the result also has the files that rank 0 left in its working folder: {', '.join(outputs)}")


def _sent() -> Iterator[list[str] | tuple[str, bytes]]:
    instance = environment.read()
    yield folders.save_outputs(instance)
    yield from read_pieces(instance.paths.model)


def read_pieces(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield ``(name, bytes)`` of each file below ``folder``, in order; an empty piece ends each file."""
    # Files behind a link to a folder too, which the service uploads if rank 0 is on the head.
    for path in sorted(files_below(folder)):
        name = path.relative_to(folder).as_posix()
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield name, piece
        # Without this piece, an empty file would be missing.
        yield name, b""


def write_pieces(pieces: Iterator[tuple[str, bytes]], to: Path) -> None:
    """Write what ``read_pieces`` yielded below ``to``; a file gets its name once it is complete."""
    for name, piece in pieces:
        with replacing(to / name) as beside:
            with beside.open("wb") as file:
                while piece:
                    file.write(piece)
                    _, piece = next(pieces)


def write_manifest(request: JobRequest, model: Path, hosts: tuple[str, ...], training_s: float) -> Manifest | None:
    """Write the manifest into the folder ``model``, as the last file of the result.

    ``training_s`` are the seconds from the first worker's start to the last one's end, restarts included.
    """
    # A script that does not use raysm.training leaves none.
    measured = Measured.read(model) if (model / TRAINING).is_file() else Measured(summary="", measures={})
    return runner.write_manifest(
        request,
        model,
        instances=hosts,
        phases_s={"training": training_s},
        # The package that can read a model again; other packages are the user's.
        packages=("torch",),
        described=(_model(model / MODEL_FILE),) if (model / MODEL_FILE).is_file() else (),
        measures=measured.measures,
        summary=measured.summary,
    )


def _model(path: Path) -> ResultFile:
    return ResultFile(
        name=MODEL_FILE,
        shape=(_values(path),),
        units=("values",),
        bytes=path.stat().st_size,
        sha256=sha256_of(path),
        how_to_read=f"safetensors.torch.load_file('{MODEL_FILE}')",
    )


def _values(path: Path) -> int:
    """Return how many numbers a safetensors file holds: its header, JSON after its length, has all shapes."""
    with path.open("rb") as file:
        # Only the header is read, because a model may have many GB.
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(item["shape"]) for name, item in header.items() if name != "__metadata__")
