"""Interrupted, killed, continued elsewhere: the result is the one that an undisturbed training would have had."""

import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file

from raysm.features.training.cluster.checkpoint.manifest import MANIFEST, read_manifests
from raysm.features.training.cluster.model_file import MODEL_FILE
from tests.support import trainee


@pytest.fixture(scope="module")
def workers(forks):
    return forks.program(trainee.__name__)


@pytest.fixture(scope="module")
def undisturbed(workers, tmp_path_factory):
    """The model of a training on two workers that nothing happened to, and that made no checkpoint."""
    folder = tmp_path_factory.mktemp("undisturbed")
    workers.run(folder, ["--model", folder], workers=2)
    return (folder / MODEL_FILE).read_bytes()


def model(folder):
    return (folder / MODEL_FILE).read_bytes()


def test_stopped_by_sigterm_in_the_middle_of_an_epoch_it_ends_with_the_same_weights(
    workers, undisturbed, tmp_path
):
    given = ["--checkpoints", tmp_path / "kept", "--model", tmp_path]
    running = workers.start(tmp_path / "1", [*given, "--hold", 4], workers=2)
    running.wait_for(tmp_path / "kept", "held-0", "held-1")
    running.kill([0, 1], signal.SIGTERM)
    assert running.exits() == [128 + signal.SIGTERM] * 2
    assert "newest whole checkpoint is that of step 5" in running.text()

    said = workers.run(tmp_path / "2", given, workers=2)
    assert "goes on from the checkpoint of step 5 (epoch 0, 80 of 121 samples)" in said
    assert model(tmp_path) == undisturbed


def test_told_to_one_worker_alone_all_stop_after_the_same_step_and_save_it(workers, tmp_path):
    given = ["--checkpoints", tmp_path / "kept", "--model", tmp_path, "--every", 100]
    running = workers.start(tmp_path / "1", [*given, "--hold", 4, "--holding", 1], workers=2)
    running.wait_for(tmp_path / "kept", "held-1")
    running.kill([1], signal.SIGTERM)
    assert running.exits() == [128 + signal.SIGTERM] * 2
    assert [manifest.step for manifest in read_manifests(tmp_path / "kept").values()] == [5]


def test_after_a_worker_was_killed_only_the_steps_since_the_checkpoint_are_repeated(
    workers, undisturbed, tmp_path
):
    given = ["--checkpoints", tmp_path / "kept", "--model", tmp_path]
    running = workers.start(tmp_path / "1", [*given, "--hold", 5, "--holding", 1], workers=2)
    running.wait_for(tmp_path / "kept", "held-1", f"step-*3-*/{MANIFEST}")
    running.kill([1])
    assert running.exits()[1] == -signal.SIGKILL

    said = workers.run(tmp_path / "2", given, workers=2)
    assert "goes on from the checkpoint of step 3 (epoch 0, 48 of 121 samples)" in said
    assert model(tmp_path) == undisturbed


def test_after_an_instance_was_killed_the_files_that_one_lacks_come_from_the_other(
    workers, undisturbed, tmp_path
):
    def kept(instance):
        return ["--checkpoints", tmp_path / f"kept-{instance}"]

    on_two = {"workers": 2, "per_instance": 1, "arguments_of": kept}
    given = ["--model", tmp_path]
    running = workers.start(tmp_path / "1", [*given, "--hold", 5, "--holding", 1], **on_two)
    running.wait_for(tmp_path, "kept-1/held-1", f"kept-0/step-*3-*/{MANIFEST}")
    running.kill([1])
    running.exits()
    assert not read_manifests(tmp_path / "kept-1")

    said = workers.run(tmp_path / "2", given, **on_two)
    assert "goes on from the checkpoint of step 3" in said
    assert "came from other instances" in said
    assert model(tmp_path) == undisturbed


@pytest.mark.parametrize("cut", ["shard", "pipeline"])
def test_saved_on_four_workers_in_parts_and_gone_on_with_whole_on_two_the_loss_continues(
    workers, tmp_path, cut
):
    def kept(instance):
        return ["--checkpoints", tmp_path / f"kept-{instance}"]

    workers.run(
        tmp_path / "0",
        ["--model", tmp_path / "alone", "--plain", "--losses", tmp_path / "expected"],
        workers=1,
    )
    given = ["--model", tmp_path, "--plain", "--losses", tmp_path / "losses"]
    running = workers.start(
        tmp_path / "1",
        [*given, f"--{cut}", 2, "--hold", 5, "--holding", 0, 1, 2, 3],
        workers=4,
        per_instance=2,
        arguments_of=kept,
    )
    running.wait_for(tmp_path, *(f"kept-{rank // 2}/held-{rank}" for rank in range(4)))
    running.kill(range(4), signal.SIGTERM)
    running.exits()

    said = workers.run(tmp_path / "2", given, workers=2, per_instance=1, arguments_of=kept)
    assert "goes on from the checkpoint of step 6 (epoch 0, 96 of 121 samples)" in said
    assert f"4 workers (data=2 × {cut}=2), now there are 2" in said
    steps = [line.split()[0] for line in (tmp_path / "losses").read_text().splitlines()]
    # Whose loss was not returned: it ended there.
    assert steps == [str(step) for step in range(1, 17) if step != 6]
    expected = dict(line.split() for line in (tmp_path / "expected").read_text().splitlines())
    for line in (tmp_path / "losses").read_text().splitlines():
        step, loss = line.split()
        assert float(loss) == pytest.approx(float(expected[step]), abs=1e-5)
    alone = load_file(tmp_path / "alone" / MODEL_FILE)
    for name, tensor in load_file(tmp_path / MODEL_FILE).items():
        torch.testing.assert_close(tensor, alone[name], atol=1e-5, rtol=0)


def test_a_torn_checkpoint_is_passed_over_and_the_one_before_gone_on_with(
    workers, undisturbed, tmp_path
):
    given = ["--checkpoints", tmp_path / "kept", "--model", tmp_path]
    workers.run(tmp_path / "1", [*given, "--epochs", 1], workers=2)
    newest, before = sorted((tmp_path / "kept").glob("step-*"), reverse=True)
    damaged = newest / "__0_0.distcp"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    without = tmp_path / "kept" / "step-0000000007-00000000"
    shutil.copytree(newest, without, ignore=shutil.ignore_patterns(MANIFEST))

    said = workers.run(tmp_path / "2", given, workers=2)
    assert "the checkpoint of step 6 is incomplete or damaged" in said
    assert f"no intact copy of {damaged} was found" in said
    assert f"goes on from the checkpoint of step {int(before.name[5:15])} (" in said
    assert not newest.exists()
    assert not without.exists()
    assert model(tmp_path) == undisturbed
