"""What a few tiles cost, measured in a process of its own, as an estimate asks for it."""

import json
import subprocess
import sys

import numpy as np
import pytest

from raysm.request import Similarity
from raysm.request.codec import from_json, to_json
from raysm.workloads.similarity.estimating import probe
from raysm.workloads.similarity.estimating.probe import Costs, Question, measure


@pytest.fixture
def question(tmp_path):
    np.save(tmp_path / "m.npy", np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32))
    (tmp_path / "scratch").mkdir()

    def ask(workload):
        folders = {"path": str(tmp_path / "m.npy"), "scratch": str(tmp_path / "scratch")}
        return Question(**folders, workload=workload, rows=100, least_s=0.01)

    return ask


def test_every_cost_of_top_k_is_measured(question):
    costs = measure(question(Similarity(top_k=5)))
    assert costs.engine
    assert min(costs.prepare, costs.operand, costs.diagonal, costs.tile, costs.merge) > 0
    assert costs.operand_bytes > 0


def test_of_strips_nothing_is_made_ready_and_the_head_merges_nothing(question):
    costs = measure(question(Similarity(full=True)))
    assert (costs.operand, costs.merge, costs.operand_bytes) == (0.0, 0.0, 0)
    assert costs.tile > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_answers_a_question_in_json_with_one_line(question):
    asked = json.dumps(to_json(question(Similarity(threshold=0.5))))
    answered = subprocess.run(
        [sys.executable, "-m", probe.__name__], input=asked, capture_output=True, text=True, timeout=300, check=True
    )
    costs = from_json(Costs, json.loads(answered.stdout), "costs")
    assert costs.tile > 0
    assert answered.stdout.count("\n") == 1
