from raysm.workloads.blocks import LATER, RowBlock, TileBlock
from raysm.workloads.similarity.layouts.replicated import TileQueue
from raysm.workloads.similarity.tasks.tile_task import FreeTile


class Told:
    """Knows how often it was asked."""

    def __init__(self):
        self.hints = 0

    def hint(self, task):
        self.hints += 1
        return self.hints


def tile(row, column):
    return FreeTile(TileBlock(RowBlock(row, row + 10), RowBlock(column, column + 10)), True)


def test_tiles_go_out_in_order_with_what_is_known_then():
    tasks = [tile(0, 0), tile(0, 10)]
    queue = TileQueue(tasks, Told())
    first, second = next(queue), next(queue)
    assert [(task.tile, task.hint) for task in (first, second)] == [(tasks[0].tile, 1), (tasks[1].tile, 2)]
    assert next(queue) is LATER
    assert queue.finished(first, ()) == []
    assert next(queue) is LATER
    queue.finished(second, ())
    assert next(queue, None) is None


def test_the_pieces_of_a_tile_that_was_given_up_come_next_at_their_place_in_the_matrix():
    queue = TileQueue([tile(20, 40), tile(0, 0)], Told())
    halves = [TileBlock(RowBlock(0, 10), RowBlock(0, 5)), TileBlock(RowBlock(0, 10), RowBlock(5, 10))]
    again = queue.finished(next(queue), halves)
    assert [(task.tile.rows, task.tile.columns) for task in again] == [
        (RowBlock(20, 30), RowBlock(40, 45)),
        (RowBlock(20, 30), RowBlock(45, 50)),
    ]
    assert [next(queue).tile for _ in range(3)] == [again[0].tile, again[1].tile, tile(0, 0).tile]
