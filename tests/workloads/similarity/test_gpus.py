import numpy as np
import pytest

from raysm.errors import InvalidRequest
from raysm.workloads.nodes import Node
from raysm.workloads.row_blocks import RowBlock, TileBlock
from raysm.workloads.similarity import run
from raysm.workloads.similarity.arithmetic.keys import TopKAccumulator, encode
from raysm.workloads.similarity.arithmetic.tiling import triangle
from raysm.workloads.similarity.engines.cuda import CudaEngine
from raysm.workloads.similarity.modes.threshold import threshold_tile
from raysm.workloads.similarity.modes.topk import TileBounds, TopK
from raysm.workloads.similarity.runs import Report
from raysm.workloads.similarity.tasks.context import engine_cache_of
from raysm.workloads.similarity.tasks.parts import TileTask
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import neighbors, pairs
from tests.support.similarity import context_of, saved


def node(host, gpus=0):
    return Node(host=host, node_id=host, address="", rank=0, instance_type="", cpus=4, gpus=gpus)


@pytest.fixture
def report():
    return Report(emit_event=lambda event: None)


def choose(report, forced, nodes, ask=None, against=""):
    return run.choose_engine(forced, against, 8, report, nodes, ask)


def answering(**answers):
    return lambda nodes, columns: [answers.get(node.host.replace("-", "_"), "") for node in nodes]


def test_gpus_alone_compute_and_the_instances_without_are_named(report, capsys):
    nodes = [node("algo-1"), node("algo-2", 4), node("algo-3")]
    assert choose(report, None, nodes, answering()) == "cuda"
    assert report.notes == ["the GPUs alone compute, not the instances that have none: algo-1, algo-3"]
    assert report.notes[0] in capsys.readouterr().err


def test_gpus_that_cannot_be_used_are_a_warning_and_the_cpus_compute(report, capsys):
    nodes = [node("algo-1", 1), node("algo-2", 1)]
    assert choose(report, None, nodes, answering(algo_2="torch is missing")) is None
    assert report.notes == ["warning: the GPUs are not used, the CPUs compute instead: on algo-2, torch is missing"]
    assert "warning" in capsys.readouterr().err


def test_gpus_that_are_not_there_are_an_error_only_if_they_are_asked_for(report):
    assert choose(report, None, [node("algo-1"), node("algo-2")]) is None
    assert report.notes == []
    with pytest.raises(InvalidRequest, match="no instance has a GPU"):
        choose(report, "cuda", [node("algo-1")])
    with pytest.raises(InvalidRequest, match="on algo-1, the driver is too old"):
        choose(report, "cuda", [node("algo-1", 1)], answering(algo_1="the driver is too old"))


def test_tasks_of_a_gpu_answer_as_those_of_a_cpu_do(tmp_path):
    rows = kinds_of_rows()["near ties"]
    context = context_of(saved(rows, tmp_path))
    engine_cache_of(context).engine = CudaEngine("cpu", rows.shape[1], free_bytes=1 << 17)
    accumulator = TopKAccumulator(tmp_path, len(rows), 4)
    for tile in triangle(len(rows), 60):
        known = accumulator.lower_bounds
        told = TileBounds(known[tile.rows.start : tile.rows.stop], known[tile.columns.start : tile.columns.stop])
        part = TopK(4).compare(context, TileTask(tile, True, told))
        accumulator.merge(tile.rows, part["counts"], part["keys"])
        if "column_counts" in part:
            accumulator.merge(tile.columns, part["column_counts"], part["column_keys"])
    indices, scores = neighbors(rows, 4)
    assert np.array_equal(accumulator.read(0, len(rows)), encode(scores, indices))
    accumulator.close()
    found = threshold_tile(context, np.float32(0.5), TileBlock(RowBlock(0, len(rows)), RowBlock(0, len(rows))))
    i = np.repeat(np.arange(len(rows)), np.diff(found["offsets"])).tolist()
    assert list(zip(i, found["neighbors"].tolist(), found["similarities"], strict=True)) == pairs(rows, 0.5)
