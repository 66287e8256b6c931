import pytest

from raysm.errors import InvalidRequest
from raysm.training import Parallel


def test_an_estimators_distribution_of_v1_is_taken_over_whole():
    options = {
        "smdistributed": {
            "modelparallel": {
                "enabled": True,
                "parameters": {
                    "partitions": 2,
                    "placement_strategy": "spread",
                    "pipeline": "interleaved",
                    "optimize": "memory",
                    "ddp": True,
                    "microbatches": 4,
                    "auto_partition": True,
                },
            }
        },
        "mpi": {"enabled": True, "processes_per_host": 8},
    }
    assert Parallel.from_smdistributed(options) == Parallel(
        pipeline=2,
        placement="spread",
        schedule="1f1b",
        optimize="memory",
        microbatches=4,
        workers_per_instance=8,
    )


@pytest.mark.parametrize(
    ("options", "parallel"),
    [
        ({"partitions": 1}, Parallel(data=1)),
        (
            {"pipeline_parallel_degree": 2, "microbatches": 4, "pipeline": "simple"},
            Parallel(data=1, pipeline=2, microbatches=4, schedule="gpipe"),
        ),
        ({"partitions": 4}, Parallel(data=1, pipeline=4, microbatches=1, schedule="gpipe")),
        (
            {"partitions": 1, "tensor_parallel_degree": 4, "ddp": True, "placement_strategy": "DPT"},
            Parallel(tensor=4),
        ),
        ({"partitions": 1, "ddp": True, "sharded_data_parallel_degree": 8}, Parallel(shard=8)),
        ({"partitions": 1, "ddp": True, "shard_optimizer_state": True}, Parallel(shard=None)),
        ({"partitions": 1, "ddp": True, "offload_activations": True}, Parallel(offload=True)),
        ({"hybrid_shard_degree": 4, "tensor_parallel_degree": 2}, Parallel(shard=4, tensor=2)),
        ({"hybrid_shard_degree": 0}, Parallel(shard=None)),
        ({"hybrid_shard_degree": 1}, Parallel()),
        ({"tensor_parallel_degree": 4, "sm_activation_offloading": True}, Parallel(shard=None, tensor=4, offload=True)),
    ],
)
def test_each_option_with_a_counterpart_becomes_it(options, parallel):
    assert Parallel.from_smdistributed(options) == parallel


@pytest.mark.parametrize(
    ("options", "parallel"),
    [
        ({"torch_distributed": {"enabled": True}}, Parallel()),
        ({"pytorchddp": {"enabled": True}}, Parallel()),
        ({"mpi": {"enabled": True, "processes_per_host": 8}}, Parallel(workers_per_instance=8)),
        ({"smdistributed": {"dataparallel": {"enabled": True}}}, Parallel()),
        (
            {"torch_distributed": {"enabled": True}, "smdistributed": {"modelparallel": {"enabled": True}}},
            Parallel(shard=None),
        ),
    ],
)
def test_a_distribution_that_does_not_cut_the_model_is_plain_ddp(options, parallel):
    assert Parallel.from_smdistributed(options) == parallel


def test_options_of_the_data_parallel_library_are_dropped_and_named():
    options = {"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": "-x NCCL_DEBUG=VERSION"}}}
    with pytest.warns(UserWarning, match=r"dropped: custom_mpi_options='-x NCCL_DEBUG=VERSION'"):
        assert Parallel.from_smdistributed(options) == Parallel()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"partitions": 2, "microbatches": 2, "active_microbatches": 4}, "active_microbatches=4 has no counterpart"),
        ({"partitions": 2, "auto_partition": False}, r"auto_partition=False .* prepare\(blocks="),
        ({"partitions": 1, "fp16": True}, "fp16=True .* prepare\\(precision='bf16'\\)"),
        ({"partitions": 1, "horovod": True}, "horovod=True .* say ddp=True"),
        ({"hybrid_shard_degree": 2, "expert_parallel_degree": 2}, "expert_parallel_degree=2 has no counterpart"),
        ({"hybrid_shard_degree": 2, "activation_loading_horizon": 4}, "activation_loading_horizon=4"),
        (
            {"partitions": 2, "placement_strategy": "TPD"},
            "placement_strategy='TPD' .* 'cluster', 'DPT', 'spread', 'PDT'",
        ),
        ({"partitions": 2, "nonsense": 1}, "the option 'nonsense' is not known"),
        ({"partitions": 2, "hybrid_shard_degree": 2}, "hybrid_shard_degree belongs to v2"),
        ({"hybrid_shard_degree": 2, "ddp": True}, "ddp belongs to v1"),
        ({"partitions": "2"}, "partitions is '2'; it must be a whole number from 1"),
        ({"partitions": 1, "tensor_parallel_degree": 2}, "needs ddp=True"),
        ({"partitions": 2, "ddp": 1}, "ddp is 1; it must be True or False"),
        ({"mpi": {"enabled": True, "custom_mpi_options": "-x A"}, "partitions": 1}, "custom_mpi_options"),
        ({"smdistributed": {"dataparallel": 1}}, "dataparallel is 1; it must be a dict"),
        ({"modelparallel": {"enabled": False}}, "enabled is not True"),
        ({"mpi": 8}, "mpi is 8; it must be a dict"),
    ],
)
def test_an_option_without_counterpart_is_refused_by_name(options, named):
    with pytest.raises(InvalidRequest, match=named):
        Parallel.from_smdistributed(options)
