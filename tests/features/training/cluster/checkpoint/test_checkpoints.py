"""Checkpoints of one process; ``test_interrupted`` has those of several."""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import pickle
import resource
import shutil
import signal

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.core.protocol.names import BASE_DIR, SCRATCH
from raysm.core.protocol.store import read_json, sha256_of
from raysm.errors import InvalidConfig, InvalidRequest
from raysm.features.training.cluster.checkpoint import shards
from raysm.features.training.cluster.checkpoint.checkpoints import Checkpoints
from raysm.features.training.cluster.checkpoint.manifest import (
    MANIFEST,
    DataOrder,
    FileRecord,
    Manifest,
    choose_outdated,
    is_intact,
    list_folders,
    parse_manifest,
    read_manifests,
)
from raysm.features.training.cluster.loop import session as sessions
from tests.support.waiting import until


@contextlib.contextmanager
def prepared(
    checkpoints, seed=0, lr=0.1, scheduler=None, model=lambda: nn.Linear(3, 2), optimizer=None
):
    """A training of this process that is about to begin; its session."""
    torch.manual_seed(seed)
    model = model()
    optimizer = (
        optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9))
    )(model.parameters())
    session = sessions.begin()
    try:
        training.prepare(
            model,
            optimizer,
            loss=functional.cross_entropy,
            scheduler=scheduler(optimizer) if scheduler else None,
            checkpoints=checkpoints,
        )
        yield session
    finally:
        sessions.end()


def train(session, steps, batch_size=4):
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(40, 3, generator=generator), torch.arange(40) % 2)
    batches = iter(training.batches(data, batch_size=batch_size, epochs=9))
    return [training.step(next(batches)) for _ in range(steps - session.position.steps)]


def kept_steps(folder):
    return sorted(manifest.step for manifest in read_manifests(folder).values())


def wait_until_kept(folder, step):
    """Checkpoints are written in the background."""
    until(lambda: step in kept_steps(folder), 120, pause_s=0.005)


@pytest.mark.parametrize(
    "options",
    [
        {"every_steps": 0},
        {"keep": 0},
        {"best": ("loss",)},
        {"best": ("loss", "min", "max")},
        {"best": ("loss", "lowest")},
    ],
)
def test_checkpoints_that_keep_nothing_or_choose_the_best_by_no_direction_are_refused(options):
    with pytest.raises(InvalidRequest, match=next(iter(options))):
        Checkpoints(**options)


@pytest.mark.parametrize(
    ("config", "has_uri", "expected"),
    [
        (None, False, None),
        (None, True, "ml/checkpoints/raysm/training"),
        (Checkpoints(), False, "scratch/raysm/training"),
        (Checkpoints(), True, "ml/checkpoints/raysm/training"),
        (Checkpoints(folder="mine"), True, "ml/checkpoints/mine"),
    ],
)
def test_checkpoints_of_a_job_are_where_the_service_keeps_them_if_it_does(
    instance, tmp_path, monkeypatch, config, has_uri, expected
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(BASE_DIR, str(instance.base))
    monkeypatch.setenv(SCRATCH, str(tmp_path / "scratch"))
    if has_uri:
        instance.checkpoint_config.write_text("{}")
    with prepared(config) as session:
        if expected:
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit) if expected else contextlib.nullcontext():
            train(session, 1)
    kept = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("step-*")}
    assert kept == ({expected} if expected else set())


def test_the_best_by_a_reported_metric_is_kept_as_well(tmp_path):
    with prepared(
        Checkpoints(every_steps=1, keep=1, best=("accuracy", "max"), folder=tmp_path)
    ) as session:
        for step, accuracy in enumerate([0.5, 0.9, float("nan"), 0.7, 0.6], 1):
            training.report(accuracy=accuracy)
            train(session, step)
    assert {manifest.step: manifest.value for manifest in read_manifests(tmp_path).values()} == {
        2: 0.9,
        5: 0.6,
    }


def test_one_that_cannot_be_written_is_said_and_the_training_goes_on(tmp_path, capsys):
    with prepared(Checkpoints(every_steps=2, folder=tmp_path)) as session:
        train(session, 2)
        wait_until_kept(tmp_path, 2)
        shutil.rmtree(tmp_path)
        tmp_path.touch()  # where the folder was nothing can be written
        train(session, 6)  # before it saves again, it has waited for that of step 4
        tmp_path.unlink()
        tmp_path.mkdir(exist_ok=True)  # that of step 6 may have begun
        train(session, 9)
    assert (
        "the checkpoint of step 4 was not written; the newest whole one is that of step 2:"
        in capsys.readouterr().out
    )
    assert 4 not in kept_steps(tmp_path)
    assert kept_steps(tmp_path)[-1] == 8


def wide():
    """A model whose checkpoint has about 3 MB."""
    return nn.Sequential(nn.Linear(3, 60_000), nn.Linear(60_000, 2))


@contextlib.contextmanager
def full_disk():
    """Let no file of this process grow beyond 1 MB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kept_before", [0, 2])
def test_a_start_after_the_disk_was_full_names_the_step_that_was_not_kept(
    tmp_path, capsys, kept_before
):
    every_2 = Checkpoints(every_steps=2, folder=tmp_path)
    if kept_before:
        with prepared(every_2, model=wide) as session:
            train(session, 2)
    with full_disk(), prepared(every_2, model=wide) as session:
        train(session, 7)
    said = capsys.readouterr().out
    assert f"step 6 was not written{'' if kept_before else ', nor any before it'}" in said
    assert os.strerror(errno.EFBIG) in said
    assert (
        sum(
            path.stat().st_size
            for path in tmp_path.rglob("*")
            if "step-0000000002" not in str(path)
        )
        < 100_000
    )
    with prepared(every_2, model=wide) as session:
        assert session.position.steps == kept_before
        said = capsys.readouterr().out
        assert "step 6 is incomplete" in said
        assert ("from the beginning" in said) == (not kept_before)
        assert ("goes on from the checkpoint of step 2" in said) == bool(kept_before)
        train(session, 7)
    with prepared(every_2, model=wide) as session:
        assert session.position.steps == 6
    assert "incomplete" not in capsys.readouterr().out


def truncate(newest, older):
    os.truncate(newest, newest.stat().st_size // 2)


def flip_a_bit(newest, older):
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)


def replace_by_older(newest, older):
    newest.write_bytes(older.read_bytes())


def remove_file(newest, older):
    newest.unlink()


@pytest.mark.parametrize(
    ("name", "alter"),
    [
        *itertools.product(
            ("__0_0.distcp", shards.METADATA), (truncate, flip_a_bit, replace_by_older, remove_file)
        ),
        *itertools.product((MANIFEST,), (truncate, replace_by_older, remove_file)),
    ],
)
def test_a_checkpoint_of_which_a_file_was_altered_is_named_and_the_one_before_is_resumed(
    tmp_path, capsys, name, alter
):
    every_2 = Checkpoints(every_steps=2, folder=tmp_path)
    with prepared(every_2) as session:
        train(session, 5)
    older, newest = sorted(tmp_path.glob("step-*"))
    alter(newest / name, older / name)
    capsys.readouterr()
    with prepared(every_2) as session:
        said = capsys.readouterr().out
        assert session.position.steps == 2
        assert f"no intact copy of {newest / name}" in said
        assert f"step {session.position.steps} (epoch 0, 8 of 40" in said
    assert not newest.exists()


def test_checkpoint_of_which_a_file_cannot_be_read_is_kept_and_the_error_is_raised(tmp_path):
    every_2 = Checkpoints(every_steps=2, folder=tmp_path)
    with prepared(every_2) as session:
        train(session, 5)
    _, newest = sorted(tmp_path.glob("step-*"))
    file = newest / "__0_0.distcp"
    content = file.read_bytes()
    file.unlink()
    # A loop of links, since root may read any file and a disk does not fail at will.
    file.symlink_to(file)
    with pytest.raises(OSError, match="step 4 was kept") as raised, prepared(every_2):
        pass
    assert (raised.value.errno, raised.value.filename) == (errno.ELOOP, str(file))
    file.unlink()
    file.write_bytes(content)
    with prepared(every_2) as session:
        assert session.position.steps == 4


def test_gone_on_with_it_is_the_training_that_went_through(tmp_path, capsys):
    with prepared(None) as session:
        expected = train(session, 8)
    with prepared(Checkpoints(every_steps=3, folder=tmp_path)) as session:
        train(session, 4)
    with prepared(Checkpoints(every_steps=3, folder=tmp_path), seed=9) as session:
        assert (session.position.steps, session.position.epoch, session.position.offset) == (
            3,
            0,
            12,
        )
        assert train(session, 8) == expected[3:]
    said = capsys.readouterr().out
    assert "checkpoint of step 3 (epoch 0, 12 of 40 samples)" in said
    assert f"{tmp_path}: " in said


def test_sigterm_saves_the_step_and_leaves_as_a_process_that_it_ends(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with prepared(Checkpoints(every_steps=100, folder=tmp_path)) as session:
        train(session, 2)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit) as left:
            train(session, 5)
    assert left.value.code == 128 + signal.SIGTERM
    assert kept_steps(tmp_path) == [3]
    assert signal.getsignal(signal.SIGTERM) is before


class Branches(nn.Module):
    """A model that uses one of two layers, and never the other."""

    def __init__(self, unused=2):
        super().__init__()
        self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, unused)

    def forward(self, x):
        return self.used(x)


MOMENTA = {
    "adam": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}


@pytest.mark.parametrize("momenta", MOMENTA)
def test_a_model_with_a_layer_that_nothing_uses_goes_on(tmp_path, momenta):
    with prepared(None, model=Branches, optimizer=MOMENTA[momenta]) as session:
        expected = train(session, 8)
    with prepared(
        Checkpoints(every_steps=3, folder=tmp_path), model=Branches, optimizer=MOMENTA[momenta]
    ) as session:
        train(session, 4)
    with prepared(
        Checkpoints(every_steps=3, folder=tmp_path), 9, model=Branches, optimizer=MOMENTA[momenta]
    ) as session:
        assert session.position.steps == 3
        has_state = [
            bool(session.trainer.optimizer.state[p])
            for p in session.trainer.parts.unused.parameters()
        ]
        assert has_state == [momenta == "adagrad"] * 2  # whose constructor makes it
        assert train(session, 8) == expected[3:]


class Thawing(nn.Module):
    """Its first layer is frozen in the beginning."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)
        self.first.requires_grad_(False)

    def forward(self, x):
        return self.second(self.first(x))


def train_thawing(session, steps, thawed_after):
    """Train as people do who thaw by the number of steps."""
    losses = []
    for step in range(session.position.steps, steps):
        session.trainer.parts.first.requires_grad_(step >= thawed_after)
        losses += train(session, step + 1)
    return losses


@pytest.mark.parametrize(
    ("momenta", "thawed_after"), [("adam", 2), ("momentum", 5), ("adagrad", 5)]
)
def test_a_layer_that_is_frozen_in_the_beginning_goes_on_with_the_state_that_it_had(
    tmp_path, momenta, thawed_after
):
    with prepared(None, model=Thawing, optimizer=MOMENTA[momenta]) as session:
        expected = train_thawing(session, 8, thawed_after)
    kept = Checkpoints(every_steps=4, folder=tmp_path)
    with prepared(kept, model=Thawing, optimizer=MOMENTA[momenta]) as session:
        train_thawing(session, 4, thawed_after)
    with prepared(kept, 9, model=Thawing, optimizer=MOMENTA[momenta]) as session:
        trainer = session.trainer
        has_state = [bool(trainer.optimizer.state.get(p)) for p in trainer.parts.first.parameters()]
        assert has_state == [momenta == "adagrad" or thawed_after < 4] * 2
        assert train_thawing(session, 8, thawed_after) == expected[4:]


@pytest.mark.parametrize(
    ("optimizer", "named"),
    [
        (
            lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
            r"optimizer\.state\.bias\.mom",
        ),
        (
            lambda parameters: torch.optim.Adam(parameters, lr=0.1),
            r"optimizer\.param_groups\.bias\.amsgrad",
        ),
    ],
)
def test_a_checkpoint_of_another_optimizer_is_refused_by_name(tmp_path, optimizer, named):
    kept = Checkpoints(every_steps=3, folder=tmp_path)
    with prepared(
        kept, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)
    ) as session:
        train(session, 3)
    with pytest.raises(InvalidRequest, match=named):
        with prepared(kept, optimizer=optimizer):
            pass


def stepped_rate(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 2)


@pytest.mark.parametrize(
    ("saved_with", "prepared_with", "named"),
    [
        (None, stepped_rate, "saved without a scheduler, and this training has one"),
        (stepped_rate, None, "saved with a scheduler, and this training has none"),
        (
            stepped_rate,
            lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
            r"it has scheduler\.step_size, which the scheduler of this training does not have",
        ),
        (
            stepped_rate,
            lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9),
            r"it has no scheduler\.T_max, which the scheduler of this training has",
        ),
    ],
)
def test_a_checkpoint_of_another_scheduler_is_refused_by_what_is_missing_or_extra(
    tmp_path, saved_with, prepared_with, named
):
    kept = Checkpoints(every_steps=3, folder=tmp_path)
    with prepared(kept, scheduler=saved_with) as session:
        train(session, 3)
    with pytest.raises(InvalidRequest, match=named):
        with prepared(kept, scheduler=prepared_with):
            pass


@pytest.mark.parametrize(
    "smaller",
    [
        {"model": lambda: nn.Sequential(nn.Linear(3, 2))},
        {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1)},
    ],
)
def test_a_checkpoint_with_state_that_would_be_lost_is_refused_and_stays(tmp_path, smaller):
    kept = Checkpoints(every_steps=3, folder=tmp_path)
    given = {
        "model": lambda: nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)),
        "optimizer": MOMENTA["momentum"],
    }
    with prepared(kept, **given) as session:
        train(session, 3)
    with pytest.raises(InvalidRequest, match="it has "):
        with prepared(kept, **(given | smaller)):
            pass
    assert kept_steps(tmp_path) == [3]


def test_a_metric_that_was_reported_before_the_interruption_still_rates_the_next_checkpoint(
    tmp_path,
):
    kept = Checkpoints(every_steps=2, best=("accuracy", "max"), folder=tmp_path)
    with prepared(kept) as session:
        training.report(accuracy=0.9)
        train(session, 2)
    with prepared(kept) as session:
        train(session, 4)
    assert {manifest.step: manifest.value for manifest in read_manifests(tmp_path).values()} == {
        2: 0.9,
        4: 0.9,
    }


@pytest.mark.parametrize("other", [{"format": 2}, {"learned_by": "a later raysm"}])
def test_a_checkpoint_of_another_version_is_refused_and_stays(tmp_path, other):
    with prepared(Checkpoints(every_steps=1, folder=tmp_path)) as session:
        train(session, 2)
    newest = max(tmp_path.glob(f"step-*/{MANIFEST}"))
    newest.write_text(json.dumps(json.loads(newest.read_text()) | other))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidRequest, match="cannot be read"):
        with prepared(Checkpoints(every_steps=1, folder=tmp_path)):
            pass
    assert sorted(tmp_path.rglob("*")) == before


def test_an_optimizer_that_was_stepped_is_refused_and_one_whose_constructor_makes_state_is_not():
    model = nn.Linear(3, 2)
    for name, momenta in MOMENTA.items():
        optimizer = momenta(model.parameters())
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        with pytest.raises(InvalidRequest, match="optimizer .*stepped"):
            training.prepare(model, optimizer, loss=functional.cross_entropy)
        assert sessions.current().trainer is None, name
    sessions.end()


def manifest(
    step, *, run="0a1b2c3d", value=None, time_s=0.0, files=None, metric=None, reported=None
):
    order = DataOrder(samples=9, batch_size=2, shuffle=True, seed=4)
    return Manifest(
        step=step,
        epoch=1,
        offset=4,
        workers=2,
        layout="data=2",
        run=run,
        files=files or {},
        order=order,
        value=value,
        metric=metric,
        reported=reported or {},
        time_s=time_s,
    )


def test_a_training_that_now_chooses_the_best_by_another_metric_goes_by_what_was_reported():
    accuracies = [0.5, 0.9, 0.7, 0.6]
    earlier = [
        manifest(step, value=step / 10, metric="loss", reported={"accuracy": accuracy})
        for step, accuracy in enumerate(accuracies)
    ]
    assert choose_outdated(earlier, 1, ("accuracy", "max")) == [earlier[2].name, earlier[0].name]
    assert choose_outdated(earlier, 1, ("loss", "min")) == [earlier[2].name, earlier[1].name]
    # What was reported as "loss" is not the loss of the step.
    other = [
        manifest(step, value=0.1, metric="accuracy", reported={"loss": step}) for step in range(3)
    ]
    assert choose_outdated(other, 1, ("loss", "min")) == [other[1].name, other[0].name]


def test_a_folder_without_a_manifest_or_with_half_of_one_is_no_checkpoint(tmp_path):
    for step in (1, 2, 3):
        manifest(step).write(tmp_path / manifest(step).name)
    (tmp_path / manifest(2).name / MANIFEST).unlink()
    torn = tmp_path / manifest(3).name / MANIFEST
    torn.write_bytes(torn.read_bytes()[:-20])
    assert [one.step for one in read_manifests(tmp_path).values()] == [1]
    assert list_folders(tmp_path) == [manifest(step).name for step in (3, 2, 1)]


def test_a_manifest_that_is_no_mapping_is_refused():
    with pytest.raises(InvalidConfig, match="step-7"):
        parse_manifest([], "step-7")


@pytest.mark.parametrize("name", ["../a", "", ".", "..", MANIFEST, "a\0b", "\ud800"])
def test_a_manifest_names_files_of_its_own_folder_only(tmp_path, name):
    manifest(7, files={name: FileRecord(bytes=1, sha256="00")}).write(tmp_path)
    with pytest.raises(InvalidConfig, match="valid name"):
        parse_manifest(read_json(tmp_path / MANIFEST), "step-7")


def test_a_file_is_intact_only_with_its_size_and_its_digest(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    record = FileRecord(bytes=3, sha256=sha256_of(path))
    assert is_intact(path, record)
    path.write_bytes(b"abd")
    assert not is_intact(path, record)
    path.unlink()
    assert not is_intact(path, record)


@pytest.fixture
def saved(tmp_path):
    """A folder with a checkpoint of two tensors, and the files that were recorded."""
    files, staging = {}, shards.stager()
    state = {"model": {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(2)}, "step": 7}
    shards.save(state, tmp_path, group=None, staging=staging, complete=files.update).result(
        timeout=60
    )
    staging.close()
    return tmp_path, files


def test_every_file_is_recorded_with_its_digest(saved):
    folder, files = saved
    assert shards.METADATA in files
    assert {path.name for path in folder.iterdir()} == set(files)
    for name, record in files.items():
        content = (folder / name).read_bytes()
        assert (record.bytes, record.sha256) == (len(content), hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"model": {"other": torch.zeros(2)}}, "model.other"),
        ({"model": {"bias": torch.zeros(3)}}, "[Ss]ize mismatch"),
    ],
)
def test_another_model_is_refused(saved, state, message):
    with pytest.raises(InvalidRequest, match=message):
        shards.plan(state, saved[0])


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_metadata_that_names_other_classes_is_refused_and_nothing_of_it_is_run(saved, tmp_path):
    folder, _ = saved
    (folder / shards.METADATA).write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    with pytest.raises(InvalidRequest, match=r"posix\.system"):
        shards.entries(folder)
    # The latter by torch 2.9.
    with pytest.raises(BaseException, match=r"posix\.system|metadata is not None"):
        shards.load({"step": 0}, folder, group=None)
    assert not (tmp_path / "ran").exists()


def test_numbers_of_numpy_are_read(tmp_path):
    staging = shards.stager()
    state = {"rates": [np.float64(0.1), np.float32(0.5), np.int64(7)]}
    shards.save(state, tmp_path, group=None, staging=staging, complete=lambda files: None).result(
        timeout=60
    )
    staging.close()
    read = {"rates": [0, 0, 0]}
    shards.load(read, tmp_path, group=None)
    assert read == state


@pytest.mark.parametrize("named", ["torch\nload", "shutil\nfloat32", "torch\nfloat3"])
def test_metadata_may_name_no_function_of_torch_and_no_type_of_another_module(saved, named):
    folder, _ = saved
    (folder / shards.METADATA).write_bytes(b"c" + named.encode() + b"\n.")
    with pytest.raises(InvalidRequest, match=named.replace("\n", r"\.")):
        shards.entries(folder)


def test_a_file_that_cannot_be_read_fails_the_load(saved):
    folder, _ = saved
    (folder / "__0_0.distcp").unlink()
    with pytest.raises(CheckpointException, match="__0_0"):
        shards.load({"model": {"bias": torch.zeros(2)}}, folder, group=None)


class Custom:
    """An object that the state of a user's scheduler could hold."""


def test_an_entry_of_an_unknown_class_is_refused_unless_the_user_trusts_it(tmp_path):
    staging = shards.stager()
    saving = shards.save(
        {"own": Custom()}, tmp_path, group=None, staging=staging, complete=lambda files: None
    )
    saving.result(timeout=60)
    staging.close()
    state = {"own": None}
    with pytest.raises(InvalidRequest, match="own .*run code"):
        shards.load(state, tmp_path, group=None)
    with torch.serialization.safe_globals([Custom]):
        shards.load(state, tmp_path, group=None)
    assert isinstance(state["own"], Custom)
