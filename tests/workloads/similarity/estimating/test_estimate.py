import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from raysm.errors import RaysmError
from raysm.request import Similarity
from raysm.workloads.similarity.estimating.estimate import START_S, estimate, predict, sizing_of
from raysm.workloads.similarity.estimating.probe import Costs
from raysm.workloads.similarity.sizing.scaling import PART_S
from raysm.workloads.similarity.tasks.engine_cache import KEPT_BYTES
from tests.support.scaling import sizing_for
from tests.support.similarity import saved

COSTS = Costs(engine="a", prepare=0.1, operand=0.0, operand_bytes=1000, diagonal=0.5, tile=1.0, merge=0.0)


def predicted(workload, matrix, slots, costs, measured_rows, gathering_s, instances=1):
    return predict(workload, sizing_of(workload, matrix, slots, instances), costs, measured_rows, gathering_s)


def measured(path, workload):
    """Return an estimate that takes no time to be exact."""
    return estimate(path, workload, 2, processes=1, least_s=0.01)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    return saved(np.ones((16_000, 1), dtype=np.int8), tmp_path_factory.mktemp("m")).open()


def test_half_the_square_is_computed_by_all_slots(matrix):
    found = predicted(Similarity(top_k=1, block_rows=1000), matrix, 4, COSTS, 1000, 0.25)
    # 16 diagonal tiles of 0.5 s, 120 of 1 s, and 3 ms for each task; 32 rounds of 4 slots leave nobody idle.
    assert found.phases_s["similarity"] == pytest.approx((16 * 0.5 + 120 + 136 * 0.003) / 4)
    assert found.phases_s["prepare"] == pytest.approx(16 * 0.1 / 4)
    assert found.total_s == pytest.approx(sum(found.phases_s.values()) + START_S)


def test_tiles_of_another_size_cost_by_their_area(matrix):
    small = predicted(Similarity(top_k=1, block_rows=1000), matrix, 1, COSTS, 500, 0.0)
    large = predicted(Similarity(top_k=1, block_rows=1000), matrix, 1, COSTS, 1000, 0.0)
    assert small.phases_s["similarity"] - 136 * 0.003 == pytest.approx(4 * (large.phases_s["similarity"] - 136 * 0.003))


def test_operands_that_a_process_does_not_keep_are_made_again(matrix):
    few = replace(COSTS, operand=0.1, operand_bytes=KEPT_BYTES // 16)
    many = replace(few, operand_bytes=KEPT_BYTES // 3)
    kept, made = (predicted(Similarity(top_k=1, block_rows=1000), matrix, 1, one, 1000, 0.0) for one in (few, many))
    bare = predicted(Similarity(top_k=1, block_rows=1000), matrix, 1, COSTS, 1000, 0.0)
    assert kept.phases_s["similarity"] - bare.phases_s["similarity"] == pytest.approx(16 * 0.1)
    # 120 tiles beside the diagonal have about one new operand each; what the diagonal ends with is at hand.
    assert 120 * 0.1 < made.phases_s["similarity"] - bare.phases_s["similarity"] < (16 + 120 + 16) * 0.1


def test_where_many_cores_compute_the_merging_on_the_head_counts(matrix):
    slow = replace(COSTS, merge=0.5)
    found = predicted(Similarity(top_k=1, block_rows=1000), matrix, 1000, slow, 1000, 0.0)
    assert found.phases_s["similarity"] == pytest.approx(136 * 0.5)


def test_where_the_instances_merge_the_head_merges_the_groups(matrix):
    slow, asked = replace(COSTS, merge=0.5), Similarity(top_k=1, block_rows=100)
    alone, many = (predicted(asked, matrix, 1000, slow, 1000, 0.0, instances) for instances in (1, 100))
    assert alone.phases_s["similarity"] == pytest.approx(160 * 161 / 2 * 0.05)
    joined = sizing_of(asked, matrix, 1000, 100).chosen_group_tiles(100)
    groups = math.ceil(160 / joined)
    assert many.phases_s["similarity"] == pytest.approx(groups * (groups + 1) / 2 * 0.05 * joined)
    assert many.phases_s["similarity"] < alone.phases_s["similarity"] / 5


def test_where_instances_own_ranges_the_head_dispatches_and_each_writes_its_own(matrix):
    slow, asked = replace(COSTS, merge=5.0), Similarity(top_k=1, block_rows=100)
    one, many = (predicted(replace(asked, parts=parts), matrix, 1000, slow, 1000, 8.0, 4) for parts in (1, 40))
    assert (one.way, one.parts, many.way, many.parts) == ("groups", 1, "ranges", 40)
    # An owner has a fortieth of 12,880 parts, of a tenth of the rows; the head gives each out.
    assert many.phases_s["similarity"] == pytest.approx(12_880 * 0.5 / 40)
    quick = predicted(replace(asked, parts=40), matrix, 1000, COSTS, 1000, 8.0, 4)
    assert quick.phases_s["similarity"] == pytest.approx(12_880 * PART_S)
    # Ten of them on each instance, which has one disk.
    assert (one.phases_s["gathering"], many.phases_s["gathering"]) == (8.0, 2.0)


def test_rows_that_are_shared_out_are_cut_for_all_instances_and_travel(matrix):
    asked = Similarity(top_k=1)
    sizing = sizing_of(asked, matrix, 32, 4, shared_out=True)
    found = predict(asked, sizing, COSTS, 1000, 0.0)
    chunks = math.ceil(16_000 / sizing.chunk_rows(sizing.spread)[0])
    assert (found.tasks, found.chunk_rows) == (chunks * (chunks + 1) // 2, math.ceil(16_000 / chunks))
    # Of 16,000 rows of one byte.
    assert found.coming_bytes == 8000
    slow = replace(sizing, spread=replace(sizing.spread, coming_bytes=1.25e9 * 1000))
    assert 1000 <= predict(asked, slow, COSTS, 1000, 0.0).phases_s["similarity"] < 1000 + found.phases_s["similarity"]


def test_of_the_full_matrix_of_rows_that_are_shared_out_half_the_square_is_computed(matrix):
    asked = Similarity(full=True, block_rows=1000)
    sizing = sizing_of(asked, matrix, 4, 4, shared_out=True)
    found = predict(asked, sizing, COSTS, 1000, 80.0)
    computing = (16 * 0.5 + 120 + 136 * 0.003 + 16_000**2 * 4 * 2e-9) / 4
    assert found.phases_s["similarity"] == pytest.approx(computing)
    assert found.phases_s["gathering"] == pytest.approx(80 - computing)


def test_the_estimate_takes_the_way_that_the_job_would(matrix):
    large = replace(sizing_for(10**7, 64), block_rows=None)
    found = predict(Similarity(top_k=10), large, COSTS, 4096, 8.0)
    assert (found.way, found.parts) == ("ranges", 64)
    assert predicted(Similarity(top_k=1), matrix, 4, COSTS, 1000, 0.0).way == "head"


def test_of_the_full_matrix_the_whole_square_is_computed_while_it_is_written(matrix):
    found = predicted(Similarity(full=True), matrix, 4, COSTS, 1000, 80.0)
    computing = (256 + 16_000**2 * 4 * 2e-9 + 31 * 0.003) / 4
    assert found.phases_s["similarity"] == pytest.approx(computing)
    assert found.phases_s["gathering"] == pytest.approx(80 - computing)


def test_of_the_full_matrix_in_parts_each_instance_writes_its_own_beside_the_computing(matrix):
    found = predicted(Similarity(full=True, parts=8), matrix, 4, COSTS, 1000, 800.0, instances=2)
    computing = (256 + 16_000**2 * 4 * 2e-9 + 31 * 0.003) / 4
    # Eight files on the disks of two instances.
    assert found.phases_s["gathering"] == pytest.approx(400 - computing)
    assert (found.way, found.parts) == ("ranges", 8)
    assert found.result.startswith("8 files, each of a range of rows")


@pytest.mark.parametrize("workload", [{"top_k": 3}, {"threshold": 0.5}, {"full": True}])
def test_a_few_tiles_of_the_matrix_itself_are_measured(workload, tmp_path):
    source = saved(np.random.default_rng(0).standard_normal((900, 16)), tmp_path)
    found = measured(source.place.channel, Similarity(**workload))
    assert found.engine
    assert list(found.phases_s) == ["prepare", "similarity", "gathering"]
    assert 0 < found.phases_s["similarity"] < 10


def test_sparse_rows_are_measured_by_their_elements(tmp_path):
    path = tmp_path / "m.npz"
    scipy.sparse.save_npz(path, scipy.sparse.random(4000, 3000, 0.002, format="csr", random_state=0))
    assert "sparse" in measured(path, Similarity(top_k=3)).engine


def test_a_matrix_that_cannot_be_measured_says_why(tmp_path):
    rows = np.ones((900, 16))
    rows[3, 3] = np.nan
    source = saved(rows, tmp_path)
    with pytest.raises(RaysmError, match=r"tiles of matrix.npy could not be measured: .*row 3 of the matrix"):
        measured(source.place.channel, Similarity(top_k=3))
