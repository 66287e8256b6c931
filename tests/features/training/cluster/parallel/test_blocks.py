"""The blocks of a model."""

import os
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.parallel.blocks import (
    block_names,
    check_compiler,
    container_of_blocks,
)
from raysm.training import Parallel
from tests.support.drawn_models import Drawn
from tests.support.standing_ranks import train


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.single = nn.Sequential(nn.Linear(64, 64))


def test_a_container_can_be_named_and_the_model_itself_may_be_it():
    assert block_names(Transformer(), "stem") == ["stem.0", "stem.1"]
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert container_of_blocks(model) == ""
    assert block_names(model) == ["0", "1"]


def test_what_is_no_container_is_refused_with_those_that_are():
    with pytest.raises(InvalidRequest, match="'single'.*'stem', 'layers'"):
        block_names(Transformer(), "single")


CPU = torch.device("cpu")

HAS_COMPILER = shutil.which(os.environ.get("CXX", "g++")) is not None

UNCOMPILED = """
import torch
from torch import nn
from raysm import training

model = nn.Linear(2, 1)
before = model.forward
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    training.prepare(model, optimizer, loss=nn.functional.mse_loss, compile=True)
except training.prepare.__globals__["InvalidRequest"] as error:
    print(error)
print(model.forward == before)
"""


def test_what_cannot_be_compiled_is_said_in_the_compilers_words_with_a_remedy():
    def compiled(function):
        def call(*_):
            raise RuntimeError(
                "\nInvalidCxxCompiler: No working C++ compiler found\n\nSet TORCHDYNAMO_VERBOSE=1"
            )

        return call

    message = r"InvalidCxxCompiler.* g\+\+"
    with pytest.raises(InvalidRequest, match=message):
        check_compiler(CPU, compiled)


@pytest.mark.long
def test_without_a_compiler_the_training_is_refused_and_the_model_as_it_was(tmp_path):
    # Read when torch is imported, so in a process of its own; with a cache of its own, that has
    # nothing compiled.
    variables = {**os.environ, "CXX": "/nothing/g++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", UNCOMPILED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, env=variables)
    assert ended.returncode == 0, ended.stderr
    assert "InvalidCxxCompiler" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "True"


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not HAS_COMPILER, reason="this machine has no C++ compiler")
@pytest.mark.parametrize(
    "parallel",
    [
        pytest.param(Parallel(), marks=pytest.mark.long),
        pytest.param(Parallel(shard=2, optimize="memory"), marks=pytest.mark.soak),
        pytest.param(Parallel(pipeline=2, microbatches=2), marks=pytest.mark.soak),
    ],
    ids=["replicas", "shards, computed again", "pipeline"],
)
def test_compiled_blocks_follow_one_process_that_compiles_nothing(ranks, parallel):
    drawn = Drawn(blocks=("mlp", "mlp"), rows=32, batch_size=16, epochs=1)
    alone = train(drawn, None)
    sessions.end()
    # The compiler of C++ takes a minute of a core for the first block, on a machine that has others
    # to serve.
    results = ranks.run(2, train_compiled, drawn, parallel, deadline_s=1200.0)
    assert results[0][0] == pytest.approx(alone[0], abs=1e-5)
    assert (
        max(float((results[0][1][name] - tensor).abs().max()) for name, tensor in alone[1].items())
        < 1e-5
    )


def train_compiled(drawn, parallel):
    return train(drawn, parallel, compile=True)
