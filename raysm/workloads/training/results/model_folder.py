"""Rank 0's model folder, brought to the head in pieces where rank 0 is elsewhere.

What flows in are the files of one instance's model folder, what flows out are the same files on the head, each one
whole or absent; a few pieces of 8 MiB are under way at a time.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysm.bootstrap import environment
from raysm.bootstrap.environment import Environment
from raysm.bootstrap.ray_internals import BACKPRESSURE, spare_options
from raysm.contract.store import replacing
from raysm.errors import InstanceLost
from raysm.workloads.nodes import Node
from raysm.workloads.training.results import working_folder

__all__ = ["bring_model", "pieces", "put_together"]

PIECE_BYTES = 8 << 20
UNDER_WAY = 4


def bring_model(node: Node, head: Environment, say: Callable[[str], None]) -> None:
    """Let the head's model folder be what the workers of ``node`` left in theirs, and in the folder they ran in.

    Raises:
        InstanceLost: The instance went away before all of it was here.
    """
    if node.host == head.current_host:
        kept = working_folder.keep(head)
    else:
        read = ray.remote(num_cpus=0, max_retries=0)(_sent)
        sent = read.options(
            num_returns="streaming",
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
            **spare_options(BACKPRESSURE, {"_generator_backpressure_num_objects": UNDER_WAY}),
        ).remote()
        try:
            kept = ray.get(next(sent))
            put_together((ray.get(piece) for piece in sent), head.paths.model)
        except RayTaskError:
            raise
        except RayError as error:
            raise InstanceLost(f"{node.host} lost, and rank 0's model with it") from error
    if kept:
        say(f"in the result, beside the model, is what rank 0 left in its working folder: {', '.join(kept)}")


def _sent() -> Iterator[list[str] | tuple[str, bytes]]:
    here = environment.read()
    yield working_folder.keep(here)
    yield from pieces(here.paths.model)


def pieces(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield ``(name, bytes)`` of each file below ``folder``, in order; an empty piece ends each file."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield name, piece
        yield name, b""


def put_together(sent: Iterator[tuple[str, bytes]], to: Path) -> None:
    """Write what ``pieces`` yielded below ``to``; a file is there once it is whole."""
    for name, piece in sent:
        with replacing(to / name) as beside:
            with beside.open("wb") as file:
                while piece:
                    file.write(piece)
                    _, piece = next(sent)
