import pytest

from raysm.errors import InvalidRequest
from raysm.training import Parallel


@pytest.mark.parametrize(
    ("options", "parallel"),
    [
        ({"hybrid_shard_degree": 4, "tensor_parallel_degree": 2}, Parallel(shard=4, tensor=2)),
        ({"hybrid_shard_degree": 0, "expert_parallel_degree": 1}, Parallel(shard=None)),
        (
            {"tensor_parallel_degree": 4, "sm_activation_offloading": True},
            Parallel(shard=None, tensor=4, offload=True),
        ),
        ({"torch_distributed": {"enabled": True}}, Parallel()),
        ({"mpi": {"enabled": True, "processes_per_host": 8}}, Parallel(workers_per_instance=8)),
        ({"smdistributed": {"dataparallel": {"enabled": True}}}, Parallel()),
        (
            {
                "torch_distributed": {"enabled": True},
                "smdistributed": {"modelparallel": {"enabled": True}},
            },
            Parallel(shard=None),
        ),
    ],
)
def test_options_become_fields_and_without_modelparallel_it_is_plain_ddp(options, parallel):
    assert Parallel.from_smdistributed(options) == parallel


def test_options_of_the_data_parallel_library_are_dropped_and_named():
    options = {
        "smdistributed": {
            "dataparallel": {"enabled": True, "custom_mpi_options": "-x NCCL_DEBUG=VERSION"}
        }
    }
    with pytest.warns(UserWarning, match=r"dropped: custom_mpi_options='-x NCCL_DEBUG=VERSION'"):
        assert Parallel.from_smdistributed(options) == Parallel()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"partitions": 2, "microbatches": 2}, "version 1 .* training.Parallel"),
        ({"hybrid_shard_degree": 2, "expert_parallel_degree": 2}, "expert_parallel_degree=2"),
        ({"hybrid_shard_degree": 2, "ddp": True}, "ddp=True"),
        ({"tensor_parallel_degree": "2"}, "tensor .*'2'"),
        ({"sm_activation_offloading": 1}, "sm_activation_offloading is 1"),
        ({"modelparallel": {"enabled": False}}, "enabled is not True"),
        ({"mpi": 8}, "mpi is 8"),
    ],
)
def test_an_option_without_counterpart_is_refused_by_name(options, named):
    with pytest.raises(InvalidRequest, match=named):
        Parallel.from_smdistributed(options)
