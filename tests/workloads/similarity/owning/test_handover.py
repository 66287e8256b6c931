"""A task's way to the owners of its rows; the owners are scripted, the calls are Ray's."""

import numpy as np
import pytest

from raysm.errors import BlockFailed, InvalidInput, NoRoom
from raysm.workloads.blocks import RowBlock, TileBlock, map_blocks
from raysm.workloads.similarity.owning.handover import Handover, answers_of
from raysm.workloads.similarity.owning.owned import Owned
from raysm.workloads.similarity.owning.ranges import Ranges
from raysm.workloads.similarity.tasks.tile_task import FreeTile

TASK = FreeTile(TileBlock(RowBlock(2, 8), RowBlock(2, 8)), True)


class Call:
    """A method of an actor, as its callers see it."""

    def __init__(self, ray, function):
        self._ray, self._function = ray, function

    def remote(self, *arguments):
        return self._ray.put(self._function(*arguments))


class Owner:
    """Notes what it is asked and told."""

    def __init__(self, ray, number):
        self.taken, self.asked = [], []
        self.take = Call(ray, lambda *told: self.taken.append(told))
        self.bounds = Call(ray, lambda runs: self._known(runs, number))

    def _known(self, runs, number):
        self.asked.append([(run.start, run.rows) for run in runs])
        return np.full(sum(run.rows for run in runs), number, dtype=np.float32)


class Mode:
    """Finds the bounds that it was told."""

    def compare(self, context, task):
        return {"overflowed": np.array(True)} if task.hint is None else {"bounds": task.hint}


class Bounded(Owned):
    """Tells each task what is known of its rows, and sends each owner what was found."""

    def __init__(self, is_informed=True):
        self.is_informed = is_informed

    def informed(self, task, ask):
        rows = np.arange(task.tile.rows.start, task.tile.rows.stop)
        assert ask(rows[:0]).tolist() == []
        return FreeTile(task.tile, True, ask(rows)) if self.is_informed else task

    def given_up(self, task, arrays):
        return [task.tile] if "overflowed" in arrays else ()

    def split(self, task, arrays, ranges):
        numbers = np.arange(task.tile.rows.start, task.tile.rows.stop)
        for at, some in ranges.of(numbers):
            yield at, {"bounds": arrays["bounds"][some]}

    def merger(self, rows, scratch, record):
        raise AssertionError("no owner begins")


def handover(ray, is_informed=True):
    owners = [Owner(ray, number) for number in range(3)]
    edges = Ranges((0, 5, 7, 12))
    return Handover(mode=Mode(), owned=Bounded(is_informed), ranges=edges, owners=owners), owners


def test_each_owner_is_asked_about_its_rows_and_sent_what_is_of_them(ray_here):
    handing, owners = handover(ray_here)
    assert handing.compare(None, TASK) == {}
    assert [owner.asked for owner in owners] == [[[(2, 3)]], [[(5, 2)]], [[(7, 1)]]]
    assert [[(name, piece["bounds"].tolist()) for name, piece in owner.taken] for owner in owners] == [
        [(str(TASK), [0.0, 0.0, 0.0])],
        [(str(TASK), [1.0, 1.0])],
        [(str(TASK), [2.0])],
    ]


def test_of_a_tile_that_was_given_up_no_owner_hears(ray_here):
    handing, owners = handover(ray_here, is_informed=False)
    assert "overflowed" in handing.compare(None, TASK)
    assert not any(owner.taken for owner in owners)


def full_disk(block):
    raise NoRoom(f"the disk became full of {block}")


def out_of_order(block):
    raise ValueError(block)


def test_what_an_owner_could_not_do_is_said_in_its_own_words(ray_here):
    call = ray_here.remote(num_cpus=0)(full_disk)
    with pytest.raises(NoRoom, match=r"^the disk became full of it$"):
        answers_of([call.remote("it")])
    call = ray_here.remote(num_cpus=0)(out_of_order)
    with pytest.raises(ValueError, match="it"):
        answers_of([call.remote("it")])


def test_an_owners_full_disk_ends_the_work_at_once(ray_here):
    # Tried again, it would be as full; and the message would be a traceback.
    with pytest.raises(NoRoom, match=r"^the disk became full of it$"):
        list(map_blocks(full_disk, ["it"]))
    with pytest.raises(BlockFailed, match="it failed: ValueError: "):
        list(map_blocks(out_of_order, ["it"], retries=1))
    assert not issubclass(NoRoom, InvalidInput)
