from types import SimpleNamespace

import pytest

from raysm.request import Input, Similarity
from raysm.workloads.runners.similarity import SimilarityRunner

SHARDED = "ShardedByS3Key"


def runner(hosts, **distributions):
    inputs = {name: Input("/data", distribution=distribution) for name, distribution in distributions.items()}
    request = SimpleNamespace(workload=Similarity(top_k=1, id_column="name"), inputs=inputs)
    return SimilarityRunner(
        SimpleNamespace(request=request), SimpleNamespace(hosts=[f"algo-{n}" for n in range(hosts)])
    )


@pytest.mark.parametrize("matrix", ["FullyReplicated", SHARDED])
@pytest.mark.parametrize("queries", ["FullyReplicated", SHARDED])
def test_of_each_channel_the_instances_have_all_or_a_share(matrix, queries):
    found = runner(2, matrix=matrix, queries=queries)._sources()
    assert [source.channel for source in found] == ["matrix", "queries"]
    assert [source.sharded for source in found] == [matrix == SHARDED, queries == SHARDED]
    assert {source.id_column for source in found} == {"name"}


def test_one_instance_has_all_that_was_shared_out():
    assert not any(source.sharded for source in runner(1, matrix=SHARDED, queries=SHARDED)._sources())


def test_without_queries_the_rows_of_the_matrix_look_for_each_other():
    source, queries = runner(2, matrix=SHARDED)._sources()
    assert (source.sharded, queries) == (True, None)
