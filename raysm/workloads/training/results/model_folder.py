"""Rank 0's model folder, brought to the head in pieces where rank 0 is elsewhere.

What flows in are the files of one instance's model folder, what flows out are the same files on the head, each one
whole or absent; a few pieces of 8 MiB are under way at a time.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import ray
from ray.exceptions import RayError, RayTaskError

from raysm.bootstrap import environment
from raysm.bootstrap.environment import Environment
from raysm.bootstrap.ray_internals import BACKPRESSURE, spare_options
from raysm.contract.store import files_below, replacing
from raysm.errors import InstanceLost
from raysm.workloads.nodes import Node, only_on
from raysm.workloads.training.results import working_folder

__all__ = ["download_model", "read_pieces", "write_pieces"]

PIECE_BYTES = 8 << 20
UNDER_WAY = 4


def download_model(node: Node, head: Environment, say: Callable[[str], None]) -> None:
    """Let the head's model folder be what the workers of ``node`` left in theirs, and in the folder they ran in.

    Raises:
        InstanceLost: The instance went away before all of it was here.
    """
    if node.host == head.current_host:
        outputs = working_folder.save_outputs(head)
    else:
        # Never again elsewhere: another instance has another folder, and no rank 0.
        read = ray.remote(num_cpus=0, max_retries=0)(_sent)
        stream = read.options(
            num_returns="streaming",
            scheduling_strategy=only_on(node.node_id),
            # Without it the whole model would pile up in the head's object store.
            **spare_options(BACKPRESSURE, {"_generator_backpressure_num_objects": UNDER_WAY}),
        ).remote()
        try:
            outputs = ray.get(next(stream))
            write_pieces((ray.get(piece) for piece in stream), head.paths.model)
        # What was raised over there is an error of ours or of the disk, and no loss.
        except RayTaskError:
            raise
        except RayError as error:
            raise InstanceLost(f"{node.host} lost, and rank 0's model with it") from error
    if outputs:
        say(f"in the result, beside the model, is what rank 0 left in its working folder: {', '.join(outputs)}")


def _sent() -> Iterator[list[str] | tuple[str, bytes]]:
    instance = environment.read()
    yield working_folder.save_outputs(instance)
    yield from read_pieces(instance.paths.model)


def read_pieces(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield ``(name, bytes)`` of each file below ``folder``, in order; an empty piece ends each file."""
    # Those behind a link to a folder too: where rank 0 is on the head, the service has them.
    for path in sorted(files_below(folder)):
        name = path.relative_to(folder).as_posix()
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield name, piece
        # An empty file has no other piece: without an end of its own it would not be there.
        yield name, b""


def write_pieces(pieces: Iterator[tuple[str, bytes]], to: Path) -> None:
    """Write what ``read_pieces`` yielded below ``to``; a file is there once it is whole."""
    for name, piece in pieces:
        with replacing(to / name) as beside:
            with beside.open("wb") as file:
                while piece:
                    file.write(piece)
                    _, piece = next(pieces)
