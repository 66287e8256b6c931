"""Shards of Ray Data as a stream."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.features.training.cluster.loop.test_stream import learned_from, rows_of_epochs
from tests.support import ray_shards
from tests.support.ray_fixtures import environment
from tests.support.small_ray import small_ray


# Three starts of Ray Train, on a machine that may have other work.
@pytest.mark.timeout(1200)
@pytest.mark.long
def test_shards_of_ray_data_go_on_at_their_row_with_each_row_once_an_epoch(tmp_path):
    # A short folder: the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="rw", dir="/tmp") as short:
        (Path(short) / "token").write_text("0" * 64)
        with environment(Path(short)), small_ray(Path(short, "r")) as address:
            ended = subprocess.run(
                [sys.executable, "-m", ray_shards.__name__, str(tmp_path), address],
                env=os.environ | {"PYTHONPATH": str(Path.cwd())},
                capture_output=True,
                text=True,
                check=False,
            )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    expected = learned_from(tmp_path / "undisturbed", ray_shards.WORKERS)
    assert rows_of_epochs(expected) == [list(range(ray_shards.ROWS))] * 2
    for rank in range(ray_shards.WORKERS):
        # No step is repeated either: each writes a line.
        undisturbed = (tmp_path / "undisturbed" / f"rank-{rank}").read_text()
        assert (tmp_path / "stopped" / f"rank-{rank}").read_text() == undisturbed
