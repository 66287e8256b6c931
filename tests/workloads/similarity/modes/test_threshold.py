"""What a threshold asks of a tile, without any cluster."""

import numpy as np

from raysm.request import Similarity
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.tasks.tile_task import FreeTile
from tests.support.reference import pairs
from tests.support.similarity import context_of, run_of, saved

ROWS = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)


def test_no_pair_that_does_not_reach_the_threshold_as_a_number_is_one():
    assert Threshold.asked_by(Similarity(top_k=3)) is None
    mode = Threshold.asked_by(Similarity(threshold=0.9))
    # The float32 next to 0.9 lies below it.
    assert float(np.float32(0.9)) < 0.9 <= float(mode.least)


def test_a_part_names_each_row_that_has_pairs_once(tmp_path):
    task = FreeTile(TileBlock(RowBlock(0, 40), RowBlock(0, 40)), True)
    part = Threshold(np.float32(0.5)).compare(context_of(saved(ROWS, tmp_path)), task)
    rows = np.repeat(part["rows"], part["counts"]).tolist()
    found = list(zip(rows, part["neighbors"].tolist(), part["similarities"], strict=True))
    assert found == pairs(ROWS, 0.5)
    assert len(set(part["rows"].tolist())) == len(part["rows"])


def test_instances_own_pairs_as_the_rows_look_for_them(tmp_path):
    assert Threshold(np.float32(0.5)).owned(run_of(ROWS, tmp_path, threshold=0.5), None, None).self_join
