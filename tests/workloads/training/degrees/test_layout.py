import pytest

from raysm.errors import InvalidRequest
from raysm.workloads.training.degrees.parallel import Coordinates, Layout

pytestmark = pytest.mark.smoke

TWO_BY_TWO = ["algo-1", "algo-1", "algo-2", "algo-2"]


def test_clustered_stages_of_a_replica_are_neighbours_and_spread_ones_lie_on_different_instances():
    assert Layout(data=2, pipeline=2).groups("pipeline") == [[0, 1], [2, 3]]
    assert Layout(data=2, pipeline=2, placement="spread").groups("pipeline") == [[0, 2], [1, 3]]


@pytest.mark.parametrize("placement", ["cluster", "spread"])
def test_ranks_that_share_tensors_are_always_neighbours(placement):
    layout = Layout(data=2, shard=2, pipeline=2, tensor=2, placement=placement)
    assert layout.groups("tensor") == [[rank, rank + 1] for rank in range(0, 16, 2)]


def test_shards_lie_within_a_replica_and_replicas_across():
    layout = Layout(data=2, shard=2)
    assert layout.groups("shard") == [[0, 1], [2, 3]]
    assert layout.groups("data") == [[0, 2], [1, 3]]


def test_ranks_that_share_a_pipeline_or_a_tensor_read_the_same_slice():
    layout = Layout(data=2, pipeline=2, tensor=2)
    assert [layout.data_rank(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert layout.data_ranks == 2


def test_each_rank_has_a_place_of_its_own():
    layout = Layout(data=2, shard=3, pipeline=2, tensor=2, placement="spread")
    places = [layout.coordinates(rank) for rank in range(layout.world_size)]
    assert len(set(places)) == layout.world_size == 24
    assert places[0] == Coordinates(data=0, shard=0, pipeline=0, tensor=0)
    assert places[-1] == Coordinates(data=1, shard=2, pipeline=1, tensor=1)


def test_the_map_says_of_each_rank_where_it_is_and_what_it_has():
    text = Layout(data=2, pipeline=2).map(TWO_BY_TWO)
    assert text.splitlines()[2] == "rank 2 on algo-2: replica 2 of 2, pipeline rank 1 of 2"
    assert Layout().map(["algo-1"]) == "rank 0 on algo-1: the whole model"


def test_a_tensor_over_two_instances_is_refused_with_the_ranks_and_the_remedy():
    with pytest.raises(InvalidRequest, match=r"tensor=4: .*rank 2 on algo-2.*divides the 2 workers of an instance"):
        Layout(tensor=4).check_hosts(TWO_BY_TWO)
    Layout(data=2, tensor=2).check_hosts(TWO_BY_TWO)


def test_another_number_of_workers_per_instance_than_asked_for_is_refused():
    with pytest.raises(
        InvalidRequest, match="workers_per_instance=8, but algo-1 runs 2; start the job with --workers-per"
    ):
        Layout(data=4).check_hosts(TWO_BY_TWO, 8)
