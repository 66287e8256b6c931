import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest

from raysm.features.similarity.cluster.engines.plain import PlainEngine
from tests import fuzz
from tests.support.waiting import until


class OneBitOff(PlainEngine):
    """Says of one row of a tile that it is more similar, by the last bit, than it is."""

    def scores(self, left, right, out):
        super().scores(left, right, out)
        out[0, 0] = np.nextafter(out[0, 0], np.array(2, dtype=out.dtype))

    def pairs(self, left, right, threshold, *, same):
        return super().pairs(left, right, np.nextafter(threshold, np.float32(2)), same=same)

    def topk(self, left, right, best_left, best_right, *, same):
        super().topk(left, right, best_left, best_right, same=same)
        best_left.keys[0, 0] -= np.uint64(1 << 32)


class Broken(PlainEngine):
    """Fails."""

    def topk(self, left, right, best_left, best_right, *, same):
        raise MemoryError("no memory")


def of_one(engine):
    return lambda columns: {"the one": engine}


def test_a_moment_of_it_compares_all_engines_layouts_and_modes_and_finds_nothing(capsys):
    assert fuzz.main(["--seed", "109", "--problems", "5", "--workers", "0"]) == 0
    text = capsys.readouterr().out
    for name in (
        "float64 NumPy",
        "float16 CUDA, emulated",
        "sparse any, segments of 1",
        "tasks, chosen",
        "shards",
        "another",
    ):
        assert name in text
    assert "0 wrong (seed 109)" in text


@pytest.mark.parametrize("engine", [OneBitOff(), Broken()])
def test_an_engine_that_is_wrong_is_found_with_the_seed_that_shows_it(engine, capsys):
    assert fuzz.main(["--seed", "21", "--problems", "3", "--workers", "0"], of_one(engine)) == 1
    text = capsys.readouterr().out
    assert "seed 21 (again: python -m tests.fuzz --problems 1 --seed 21)" in text
    assert " 0 wrong (seed" not in text


@pytest.mark.long
def test_a_process_that_dies_of_a_problem_is_found_with_its_seed_and_an_interrupt_ends_all_with_the_counts():
    command = [
        sys.executable,
        "-m",
        "tests.fuzz",
        "--minutes",
        "9",
        "--seed",
        "21",
        "--workers",
        "2",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "problems from seed 21 on\n"
            until(lambda: len(workers_of(process.pid)) == 2, 120)
            workers_of(process.pid)[0].kill()
            assert "a process died" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            text = process.communicate(timeout=120)[0]
            assert text.startswith("stopped\n")
            assert " 1 wrong (seed 21)" in text
            assert process.returncode == 1
        finally:
            process.kill()


def workers_of(pid):
    return [one for one in psutil.Process(pid).children() if "spawn_main" in one.cmdline()[-2]]
