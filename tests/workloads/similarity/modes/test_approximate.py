"""Top-k where a recall is asked for: the same file, what it misses, and what is said of it."""

from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysm.errors import InvalidInput
from raysm.request import Similarity
from raysm.workloads.blocks import RowBlock
from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.similarity.cells.building import build
from raysm.workloads.similarity.modes import mode_of
from raysm.workloads.similarity.modes.approximate import ApproximateTopK
from raysm.workloads.similarity.runs import Report
from raysm.workloads.similarity.tasks.parts import Part
from tests.support.cells import clustered, done_here
from tests.support.reference import neighbors
from tests.support.similarity import run_of

K = 5


def strips(rows):
    return SimpleNamespace(
        strip_rows=lambda record, row_bytes: rows,
        matrix=SimpleNamespace(rows=800),
        queries=SimpleNamespace(rows=800),
    )


def gathered(rows, folder, promised=0.9, probes=None):
    """Do all tasks here, backwards; return the table, and what was told of it."""
    run = run_of(rows, folder, top_k=K, recall=0.9)
    index = build(run.context, K, 0.9, 2, done_here(run.context))
    if probes is not None:
        index = type(index)(**{name: getattr(index, name) for name in index.__slots__} | {"probes": probes})
    mode, report = ApproximateTopK(K, promised, index), Report(emit_event=lambda event: None)
    record = mode.record(run, "approximate")
    tasks = mode.tiles(strips(300), record, self_join=True)
    collector = mode.collect(run, SimpleNamespace(tasks=tasks, in_strips=True), record, strips(300))
    for task in tasks[::-1]:
        assert collector.take(task, Part(arrays=mode.compare(run.context, task), peaks={}, seconds=0.0)) == ()
    (file,) = collector.gather(ProgressThrottle("gather", 800, "rows", lambda event: None))
    collector.tell(report)
    collector.close()
    return pq.read_table(run.folders.result / file.name), report


def test_a_recall_asks_for_it_and_nothing_else_does():
    assert mode_of(Similarity(top_k=3, recall=0.9)) == ApproximateTopK(3, 0.9)
    assert mode_of(Similarity(top_k=3)).name == "topk"


def test_the_file_has_the_promised_share_of_the_true_neighbors_and_says_it(tmp_path):
    rows = clustered(800, 16)
    rows[17] = 0
    table, report = gathered(rows, tmp_path)
    found = np.stack(table["neighbors"].to_numpy())
    truth = neighbors(rows, K)[0]
    recall = np.mean([len(set(a) & set(b)) / K for a, b in zip(found.tolist(), truth.tolist(), strict=True)])
    assert recall >= 0.9
    assert table["row"].to_pylist() == list(range(800))
    # A zero row resembles nobody: the lowest numbers, as the definition has it.
    assert found[17].tolist() == [0, 1, 2, 3, 4]
    told = report.measures
    assert told["recall_low"] <= told["recall"] <= told["recall_high"]
    assert 0.9 <= told["recall"] <= 1
    assert told["cells_looked_into"] < told["cells"]
    assert 0 < told["pairs_share"] < 0.5
    assert "measured against the exact search" in report.notes[0]


def test_a_result_that_misses_more_than_was_promised_is_no_result(tmp_path):
    # As if the cells had been chosen for another matrix: in the nearest cell alone lies about half of the neighbors.
    with pytest.raises(InvalidInput, match=r"0\.999 was promised, and 0\.\d+ .* was reached; drop recall"):
        gathered(clustered(800, 16, noise=1.0), tmp_path, promised=0.999, probes=1)
    assert not (tmp_path / "result" / "neighbors.parquet").exists()


def test_each_task_has_all_rows_that_its_own_may_look_into(tmp_path):
    tiles = ApproximateTopK(K, 0.9).tiles(strips(300), None, self_join=True)
    assert [task.tile.rows for task in tiles] == [RowBlock(0, 300), RowBlock(300, 600), RowBlock(600, 800)]
    assert {(task.tile.columns, task.mirrored) for task in tiles} == {(RowBlock(0, 800), False)}


def test_sparse_rows_are_refused_before_anything_is_computed():
    matrix = SimpleNamespace(rows=100, sparse=True)
    with pytest.raises(InvalidInput, match="sparse rows .* drop recall, or give them as dense rows"):
        ApproximateTopK(3, 0.9).check(matrix, matrix)
    with pytest.raises(InvalidInput, match="ask for fewer"):
        ApproximateTopK(100, 0.9).check(matrix, matrix)
