"""What the order of the samples follows from."""

from raysm.request.codec import from_json, to_json
from raysm.workloads.training.loop.position import DataOrder


def test_an_order_comes_back_from_a_manifest_as_it_was():
    order = DataOrder(samples=1000, batch_size=64, shuffle=True, seed=3)
    assert from_json(DataOrder, to_json(order), "order") == order


def test_two_loops_over_the_same_data_are_equal_and_not_the_same():
    one, other = (DataOrder(samples=1, batch_size=1, shuffle=False, seed=0) for _ in range(2))
    assert one == other
    assert one is not other
