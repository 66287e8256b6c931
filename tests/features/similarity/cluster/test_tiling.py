"""How large tiles are, whether instances own the result, and what holds for any matrix."""

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import torch

from raysm.errors import InvalidRequest, RaysmError
from raysm.features.similarity.cluster.engines.sparse import ALL_LISTED, SEGMENT_ROWS
from raysm.features.similarity.cluster.estimate import Rates, estimate, predict
from raysm.features.similarity.cluster.modes.full import Full
from raysm.features.similarity.cluster.modes.threshold import Threshold
from raysm.features.similarity.cluster.modes.topk import TopK
from raysm.features.similarity.cluster.run import Report
from raysm.features.similarity.cluster.tasks import decode_part, encode_part
from raysm.features.similarity.cluster.tiling import (
    DENSE,
    OPERAND_BYTES,
    PART_BYTES,
    SPARSE,
    Sizing,
)
from raysm.features.similarity.request import Similarity
from raysm.features.similarity.runner import choose_engine
from raysm.instance.work.nodes import Node
from raysm.instance.work.record import BlockRecord
from tests.support.adversarial import KINDS, TYPES
from tests.support.comparing import all_comparisons
from tests.support.problems import FORMATS, LISTS, SCALARS, drawn
from tests.support.similarity import saved


def described(rows, columns=768, elements=None):
    elements = rows * columns if elements is None else elements
    return SimpleNamespace(
        rows=rows, columns=columns, dtype=np.dtype(np.float32), elements=elements
    )


def sizing_of(rows, slots=2, queries=None, mode=None, footprint=DENSE, columns=768, **more):
    matrix = described(rows, columns)
    return Sizing(
        limits=(mode or TopK(10)).limits,
        footprint=footprint,
        queries=matrix if queries is None else described(queries, columns),
        matrix=matrix,
        self_join=queries is None,
        slots=slots,
        **more,
    )


@pytest.fixture
def record(tmp_path):
    return BlockRecord(tmp_path, {}, encode=encode_part, decode=decode_part)


@pytest.mark.parametrize(("slots", "blocks"), [(1, 4), (2, 4), (16, 6), (60, 11)])
def test_tiles_take_milliseconds_at_least_but_each_slot_has_one(slots, blocks, record):
    rows, _ = sizing_of(20_000, slots=slots, columns=128).tile_rows(record)
    assert math.ceil(20_000 / rows) == blocks
    assert blocks * (blocks + 1) / 2 >= slots


@pytest.mark.parametrize("mode", [TopK(1), TopK(1000), Threshold(np.float32(0.5)), Full("float32")])
@pytest.mark.parametrize("columns", [1, 128, 768, 100_000])
def test_operands_and_parts_have_their_bytes_at_most(mode, columns):
    sizing = sizing_of(10**7, mode=mode, columns=columns)
    assert sizing.operand_rows == 1 or sizing.operand_rows * columns * 12 <= OPERAND_BYTES
    if isinstance(mode, TopK):
        assert sizing.max_block_rows * 16 * mode.k <= PART_BYTES


@pytest.mark.parametrize("columns", [1_000, 4_000_000, 1 << 28])
@pytest.mark.parametrize("each", [2, 50, 500])
def test_a_sparse_operand_has_its_bytes_at_most_with_the_lists_of_its_columns(columns, each):
    count = SPARSE.max_rows(described(10**7, columns, 10**7 * each))
    segments, elements = -(-count // SEGMENT_ROWS), count * each
    if columns <= ALL_LISTED:
        segments = max(1, min(segments, 8 * elements // columns))
        lists = 4 * columns * segments
    else:
        lists = 8 * elements
    assert count > 1
    assert 24 * elements + lists <= OPERAND_BYTES


def test_a_later_run_on_another_cluster_keeps_the_sizes_of_the_first(record):
    first = sizing_of(50_000, 2).tile_rows(record)
    assert sizing_of(50_000, 64).tile_rows(record) == first
    (record.folder / "block-rows").write_text("torn")
    assert sizing_of(50_000, 64).tile_rows(record) < first


RATES = Rates(engine="an engine", rows=1e6, pairs=1e8)


def measured(path, workload):
    return estimate(path, workload, 2, processes=1, min_s=0.01)


@pytest.mark.parametrize("workload", [{"top_k": 3}, {"full": True}])
def test_a_few_tiles_of_the_matrix_itself_are_measured(workload, tmp_path):
    source = saved(np.random.default_rng(0).standard_normal((900, 16)), tmp_path)
    found = measured(source.location.channel, Similarity(**workload))
    assert found.engine
    assert list(found.phases_s) == ["prepare", "similarity", "gathering"]
    assert 0 < found.phases_s["similarity"] < 10


def test_sparse_rows_are_measured_by_their_elements(tmp_path):
    path = tmp_path / "m.npz"
    scipy.sparse.save_npz(
        path, scipy.sparse.random(4000, 3000, 0.002, format="csr", random_state=0)
    )
    assert "sparse" in measured(path, Similarity(top_k=3)).engine


def test_a_matrix_that_cannot_be_measured_says_why(tmp_path):
    rows = np.ones((900, 16))
    rows[3, 3] = np.nan
    source = saved(rows, tmp_path)
    with pytest.raises(RaysmError, match="matrix.npy .*row 3 "):
        measured(source.location.channel, Similarity(top_k=3))


def test_the_work_is_multiplied_with_the_rates(tmp_path):
    matrix = saved(np.ones((20_000, 4), dtype=np.float32), tmp_path).open()
    one, eight = (predict(Similarity(top_k=3), matrix, RATES, slots) for slots in (1, 8))
    assert one.phases_s["prepare"] == pytest.approx(0.02)
    assert one.phases_s["similarity"] == pytest.approx(20_000**2 / 2 / 1e8)
    assert one.phases_s["similarity"] == pytest.approx(8 * eight.phases_s["similarity"])
    # Of strips each pair is computed twice; the file takes the disk as long as it takes.
    full = predict(Similarity(full=True), matrix, RATES, 1)
    assert full.phases_s["similarity"] == pytest.approx(
        max(2 * one.phases_s["similarity"], 1.6e9 / 250e6)
    )
    shared_out = predict(Similarity(top_k=3), matrix, RATES, 8, 4, shared_out=True)
    assert shared_out.coming_bytes == matrix.nbytes / 2


def node(host, gpus=0):
    return Node(host=host, node_id=host, address="", rank=0, instance_type="", cpus=4, gpus=gpus)


@pytest.fixture
def report():
    return Report(emit_event=lambda event: None)


def choose(report, forced, nodes, ask=None, against="", pairs=math.inf):
    return choose_engine(forced, against, 8, report, pairs, nodes, ask)


def answering(**answers):
    return lambda nodes, columns: [answers.get(node.host.replace("-", "_"), "") for node in nodes]


def test_gpus_alone_compute_and_the_instances_without_are_named(report, capsys):
    nodes = [node("algo-1"), node("algo-2", 4), node("algo-3")]
    assert choose(report, None, nodes, answering()) == "cuda"
    assert report.notes == [
        "the GPUs alone compute, not the instances that have none: algo-1, algo-3"
    ]
    assert report.notes[0] in capsys.readouterr().err


def test_gpus_that_cannot_be_used_are_a_warning_and_the_cpus_compute(report, capsys):
    nodes = [node("algo-1", 1), node("algo-2", 1)]
    assert choose(report, None, nodes, answering(algo_2="torch is missing")) is None
    assert report.notes == [
        "warning: the GPUs are not used, the CPUs compute instead: on algo-2, torch is missing"
    ]
    assert "warning" in capsys.readouterr().err


def test_few_rows_are_left_to_the_cpus_unless_gpus_are_asked_for(report):
    nodes, few = [node("algo-1", 1)], 1e9
    assert choose(report, None, nodes, answering(), pairs=few) is None
    assert report.notes == [
        "the CPUs compute, and need less time than the 6 s that GPUs take to start"
    ]
    assert choose(report, "cuda", nodes, answering(), pairs=few) == "cuda"
    assert choose(report, None, nodes, answering(), pairs=1e12) == "cuda"


def test_gpus_that_are_not_there_are_an_error_only_if_they_are_asked_for(report):
    assert choose(report, None, [node("algo-1"), node("algo-2")]) is None
    assert report.notes == []
    with pytest.raises(InvalidRequest, match="no instance"):
        choose(report, "cuda", [node("algo-1")])
    with pytest.raises(InvalidRequest, match="algo-1.*driver"):
        choose(report, "cuda", [node("algo-1", 1)], answering(algo_1="the driver is too old"))


PROBLEMS, ALL = 40, 60
"""Of more, CI tries as many as a minute has room for."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "seed",
    [
        *range(PROBLEMS),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(PROBLEMS, ALL)),
    ],
)
def test_the_answers_of_all_engines_and_tasks_are_those_of_float64(seed, tmp_path):
    problem = drawn(seed)
    answers = list(all_comparisons(problem, tmp_path))
    assert {one.mode for one in answers} - {"ids"} == {"topk", "threshold", "full"}
    assert [one for one in answers if one.wrong] == [], problem


def test_the_problems_are_of_every_kind():
    problems = [drawn(seed) for seed in range(PROBLEMS)]
    parts = [part for one in problems for part in one.parts + (one.queries or [])]
    layouts = Counter((one.layout, one.sparse) for one in problems)
    assert {layout for layout, _ in layouts} == {
        "one file",
        "folder of files",
        "shards",
        "queries of the same type",
        "queries of another type",
    }
    assert {layout for layout, sparse in layouts if sparse} >= {"shards", "queries of another type"}
    assert {part.format for part in parts} == {*FORMATS, *SCALARS, *LISTS}
    assert {part.rows.dtype.name for part in parts} == set(TYPES)
    assert len({one.kind for one in problems} & set(KINDS)) >= 24
    assert {one.at_once for one in problems} == {1, 2, 3, 4}
    assert {one.ranges for one in problems} == {1, 2, 3, 4}
    sides = Counter(
        (one.queries[0].rows.dtype, one.parts[0].rows.dtype) for one in problems if one.queries
    )
    assert sum(count for (left, right), count in sides.items() if left != right) > 10
    assert sum((~part.rows.astype(np.float64).any(axis=1)).any() for part in parts) > 30
