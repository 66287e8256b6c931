from dataclasses import replace

import numpy as np
import pytest

from raysm.contract.names import LABEL_HOST
from raysm.errors import InvalidRequest
from raysm.request import Similarity
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity import gpus
from raysm.workloads.similarity.arithmetic.keys import encode
from raysm.workloads.similarity.arithmetic.tiling import triangle
from raysm.workloads.similarity.arithmetic.topk_accumulator import TopKAccumulator
from raysm.workloads.similarity.engines.cuda.engine import CudaEngine
from raysm.workloads.similarity.modes.threshold import threshold_tile
from raysm.workloads.similarity.modes.topk import Deal, topk_tile
from raysm.workloads.similarity.sizing import sizes
from raysm.workloads.similarity.tasks.engine_cache import engine_cache_of
from raysm.workloads.similarity.work import Folders, Work
from tests.support.reference import neighbors, pairs
from tests.support.similarity import context_of, kinds_of_rows, saved


def node(host, gpus=0, alive=True):
    return {"Alive": alive, "NodeID": host, "Resources": {"CPU": 4.0, "GPU": gpus}, "Labels": {LABEL_HOST: host}}


@pytest.fixture
def work(tmp_path):
    source = saved(np.eye(6), tmp_path)
    return Work(
        workload=Similarity(top_k=2),
        folders=Folders(result=tmp_path, records=tmp_path),
        scratch=tmp_path,
        announce=lambda event: None,
        matrix=source.open(),
        queries=None,
        context=context_of(source),
    )


def answering(**answers):
    return lambda nodes, columns: [answers.get(node["NodeID"].replace("-", "_"), "") for node in nodes]


def test_without_gpus_a_probe_chooses_and_nothing_is_said(work):
    assert gpus.choose_engine(work, None, [node("algo-1"), node("algo-2", 4, alive=False)]) is None
    assert work.notes == []


def test_gpus_alone_compute_and_the_instances_without_are_named(work, capsys):
    nodes = [node("algo-1"), node("algo-2", 4), node("algo-3")]
    assert gpus.choose_engine(work, None, nodes, answering()) == "cuda"
    assert work.notes == ["the GPUs alone compute, not the instances that have none: algo-1, algo-3"]
    assert work.notes[0] in capsys.readouterr().err


def test_gpus_that_cannot_be_used_are_a_warning_and_the_cpus_compute(work, capsys):
    nodes = [node("algo-1", 1), node("algo-2", 1)]
    assert gpus.choose_engine(work, None, nodes, answering(algo_2="torch is missing")) is None
    assert work.notes == ["warning: the GPUs are not used, the CPUs compute instead: on algo-2, torch is missing"]
    assert "warning" in capsys.readouterr().err


@pytest.mark.parametrize("workload", [Similarity(full=True), Similarity(top_k=2)])
def test_what_gpus_do_not_compute_is_said(work, workload):
    work.workload = workload
    work.context = replace(work.context, sparse=not workload.full)
    assert gpus.choose_engine(work, None, [node("algo-1", 1)], answering()) is None
    assert "the CPUs compute instead" in work.notes[0]


def test_gpus_that_are_asked_for_and_not_there_are_an_error(work):
    with pytest.raises(InvalidRequest, match="no instance has a GPU"):
        gpus.choose_engine(work, "cuda", [node("algo-1")])
    with pytest.raises(InvalidRequest, match="on algo-1, the driver is too old"):
        gpus.choose_engine(work, "cuda", [node("algo-1", 1)], answering(algo_1="the driver is too old"))


def test_an_engine_of_the_cpu_that_is_asked_for_is_taken_though_there_are_gpus(work):
    assert gpus.choose_engine(work, "float32", [node("algo-1", 1)]) == "float32"


def test_an_instance_says_why_its_gpu_cannot_be_used():
    # The tests' machine has no GPU; a matrix this wide has no proven bound on any.
    assert gpus.why_not_here(1 << 30)


def test_tiles_of_gpus_are_larger(work):
    cpu, gpu = (sizes.max_tile_rows(Similarity(top_k=2), work.matrix, gpus=flag) for flag in (False, True))
    assert gpu > cpu
    assert sizes.max_tile_rows(Similarity(threshold=0.5), work.matrix, gpus=True) == sizes.GPU_THRESHOLD_ROWS


def test_tasks_of_a_gpu_answer_as_those_of_a_cpu_do(tmp_path):
    rows = kinds_of_rows()["near ties"]
    context = context_of(saved(rows, tmp_path))
    engine_cache_of(context).engine = CudaEngine("cpu", rows.shape[1], free_bytes=1 << 17)
    standing = TopKAccumulator(tmp_path, len(rows), 4)
    for tile in triangle(len(rows), 60):
        columns = standing.lower_bounds[tile.columns.start : tile.columns.stop]
        part = topk_tile(context, 4, Deal(tile, standing.lower_bounds[tile.rows.start : tile.rows.stop], columns))
        standing.merge(tile.rows, part["counts"], part["keys"])
        if "column_counts" in part:
            standing.merge(tile.columns, part["column_counts"], part["column_keys"])
    indices, scores = neighbors(rows, 4)
    assert np.array_equal(standing.read(0, len(rows)), encode(scores, indices))
    standing.close()
    found = threshold_tile(context, np.float32(0.5), TileBlock(RowBlock(0, len(rows)), RowBlock(0, len(rows))))
    i = np.repeat(np.arange(len(rows)), np.diff(found["offsets"])).tolist()
    assert list(zip(i, found["neighbors"].tolist(), found["similarities"], strict=True)) == pairs(rows, 0.5)
