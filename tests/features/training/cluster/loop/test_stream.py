"""Streams: each row once an epoch, whoever reads it, and the same after an interruption."""

import ast
import functools
import importlib.util
import random
import signal
import unittest.mock

import psutil
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset

from raysm import training
from raysm.errors import InvalidInput, InvalidRequest
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.loop.sampler import batches
from raysm.features.training.cluster.model_file import MODEL_FILE
from raysm.training import Parallel
from tests.support import streaming
from tests.support.streaming import ROWS
from tests.support.waiting import until

NEEDS_WEBDATASET = pytest.mark.skipif(
    importlib.util.find_spec("webdataset") is None, reason="webdataset is not installed"
)


@pytest.fixture(scope="module")
def workers(forks):
    return forks.program(streaming.__name__)


@pytest.fixture
def tars(tmp_path):
    folder = tmp_path / "tars"
    folder.mkdir()
    streaming.write_tars(folder)
    return folder


def learned_from(folder, ranks):
    """Return what each rank learned from: (step, epoch, rows) of each step; the last of two counts."""
    of_ranks = []
    for rank in range(ranks):
        steps = {}
        for line in (folder / f"rank-{rank}").read_text().splitlines():
            step, epoch, rows = line.split(" ", 2)
            steps[int(step)] = (int(epoch), ast.literal_eval(rows))
        of_ranks.append(steps)
    return of_ranks


def rows_of_epochs(of_ranks):
    rows = {0: [], 1: []}
    for steps in of_ranks:
        for epoch, numbers in steps.values():
            rows[epoch] += numbers
    return [sorted(rows[epoch]) for epoch in (0, 1)]


def run(workers, folder, data, tars, ranks, *options):
    folder.mkdir(exist_ok=True)
    text = workers.run(folder / "logs", [data, tars, folder, *options], workers=ranks)
    return text, learned_from(folder, ranks)


def interrupt(workers, folder, data, tars, ranks, step, *options):
    """Train up to a step, and stop all ranks by SIGTERM; no process is left."""
    folder.mkdir(exist_ok=True)
    kept = folder / "kept"
    given = [data, tars, folder, "--checkpoints", kept, "--hold", step, *options]
    running = workers.start(folder / "first", given, workers=ranks)
    running.wait_for(kept, *(f"held-{rank}" for rank in range(ranks)))
    children = [
        child for pid in running.pids for child in psutil.Process(pid).children(recursive=True)
    ]
    running.kill(range(ranks), signal.SIGTERM)
    assert running.exits() == [128 + signal.SIGTERM] * ranks, running.text()
    until(lambda: not any(child.is_running() for child in children), 60)
    return children


@pytest.mark.parametrize(
    ("data", "ranks", "loader_workers"),
    [
        ("whole", 3, 1),
        ("sharded", 2, 0),
        ("sharded", 3, 2),
        ("stateful", 2, 2),
        ("rows", 2, 2),
        pytest.param("webdataset", 3, 2, marks=NEEDS_WEBDATASET),
    ],
)
def test_stopped_by_sigterm_a_stream_goes_on_at_its_row_with_each_row_once_an_epoch(
    workers, tars, tmp_path, data, ranks, loader_workers
):
    options = ["--loader-workers", loader_workers]
    _, expected = run(workers, tmp_path / "undisturbed", data, tars, ranks, *options)
    assert rows_of_epochs(expected) == [list(range(ROWS))] * 2

    stopped = tmp_path / "stopped"
    children = interrupt(workers, stopped, data, tars, ranks, 4, *options)
    assert len(children) == ranks * loader_workers
    said, learned = run(
        workers, stopped, data, tars, ranks, "--checkpoints", stopped / "kept", *options
    )
    assert "goes on from the checkpoint of step 5" in said
    assert learned == expected
    assert (stopped / MODEL_FILE).read_bytes() == (
        tmp_path / "undisturbed" / MODEL_FILE
    ).read_bytes()
    skips = data in ("whole", "sharded", "webdataset")
    assert ("are read again and left out" in said) == skips


def test_whole_stream_gives_the_same_batches_to_any_number_of_ranks_and_goes_on_with_another(
    workers, tars, tmp_path
):
    def together(of_ranks):
        return {
            step: sum((steps[step][1] for steps in of_ranks), []) for step in sorted(of_ranks[0])
        }

    _, alone = run(workers, tmp_path / "1", "whole", tars, 1)
    stopped = tmp_path / "stopped"
    interrupt(workers, stopped, "whole", tars, 3, 4)
    before = together(learned_from(stopped, 3))
    for rank in range(3):
        (stopped / f"rank-{rank}").unlink()
    _, after = run(workers, stopped, "whole", tars, 2, "--checkpoints", stopped / "kept")
    assert before | together(after) == together(alone)


def test_sharded_stream_begins_its_epoch_again_on_another_number_of_ranks(workers, tars, tmp_path):
    stopped = tmp_path / "stopped"
    interrupt(workers, stopped, "stateful", tars, 3, 4)
    for rank in range(3):
        (stopped / f"rank-{rank}").unlink()
    said, learned = run(workers, stopped, "stateful", tars, 2, "--checkpoints", stopped / "kept")
    assert "in 3 × 1 shares" in said
    assert "now in 2 × 1: epoch 0 begins again, and the" in said
    assert rows_of_epochs(learned) == [list(range(ROWS))] * 2


def test_stream_with_a_state_reads_nothing_that_is_before_it(workers, tars, tmp_path):
    stopped = tmp_path / "stopped"
    interrupt(workers, stopped, "stateful", tars, 1, 5)
    before = (tars / "opened").read_text().splitlines()
    (tars / "opened").unlink()
    run(workers, stopped, "stateful", tars, 1, "--checkpoints", stopped / "kept")
    after = (tars / "opened").read_text().splitlines()
    # The tar that was open is opened again, and then those that were left, and those of an epoch.
    assert before[-1] == after[0]
    assert not set(before[:-1]) & set(after[: 10 - len(before)])
    assert len(after) == 10 - len(before) + 9


def test_share_without_any_row_takes_part_in_all_steps(workers, tmp_path):
    tars = tmp_path / "tars"
    tars.mkdir()
    streaming.write_tars(tars)
    for path in sorted(tars.glob("*.tar"))[1:]:
        path.unlink()
    _, learned = run(workers, tmp_path / "out", "sharded", tars, 3)
    assert rows_of_epochs(learned) == [list(range(7))] * 2
    assert len({len(steps) for steps in learned}) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("unshared", "the streams of all ranks begin with the same rows"),
        ("misread", "pass sharded=True"),
    ],
)
def test_streams_that_are_alike_or_differ_where_they_must_not_are_named(ranks, data, said, capsys):
    answers = ranks.run(2, step_on_stream, data)
    texts = [str(answer) for answer in answers]
    assert any(said in text for text in texts), texts


def step_on_stream(data):
    """Take one step on a stream; return what the rank printed."""
    import contextlib
    import io

    printed = io.StringIO()
    stream = Count(20, by_rank=data == "misread")
    model = torch.nn.Linear(1, 1)
    with contextlib.redirect_stdout(printed):
        training.prepare(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            loss=torch.nn.functional.mse_loss,
        )
        reading = training.batches(stream, batch_size=4, sharded=data == "unshared")
        training.step(next(reading))
        reading.close()
    return [printed.getvalue()]


class Count(IterableDataset):
    def __init__(self, rows, by_rank=False):
        self.rows = rows
        self.by_rank = by_rank

    def __iter__(self):
        first = training.rank() * 100 if self.by_rank else 0
        for number in range(first, first + self.rows):
            yield torch.tensor([float(number)]), torch.tensor([0.0])


class Uneven(IterableDataset):
    """Each rank has so many rows."""

    def __init__(self, *rows):
        self.rows = rows

    def __iter__(self):
        number, _ = training.share()
        for row in range(self.rows[number]):
            yield torch.tensor([float(row)]), torch.tensor([0.0])


def averages_of_steps(parallel):
    """Train with batch norms; return their running means after each step."""
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm1d(2)
    model = torch.nn.Sequential(torch.nn.Linear(1, 2), norm, torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, parallel, loss=torch.nn.functional.mse_loss)
    found = []
    for batch in training.batches(Uneven(2, 6), batch_size=4, sharded=True):
        training.step(batch)
        found.append(norm.running_mean.tolist())
    return found


@pytest.mark.parametrize("parallel", [Parallel(), Parallel(shard=2)], ids=["ddp", "sharded"])
def test_batch_norms_of_a_rank_whose_rows_have_run_out_keep_their_averages(ranks, parallel):
    first, second = ranks.run(2, averages_of_steps, parallel)
    assert len(first) == len(second) == 3
    assert first[0] == first[1] == first[2] != [0.0, 0.0]


def count_broadcasts():
    """Read a stream of which this rank may have no row; return the batches and the rows received."""
    with unittest.mock.patch.object(
        dist, "broadcast_object_list", wraps=dist.broadcast_object_list
    ) as broadcast:
        read = list(training.batches(Uneven(6, 0), batch_size=2, sharded=True))
    return len(read), broadcast.call_count


def test_a_rank_without_any_row_receives_one_once(ranks):
    assert ranks.run(2, count_broadcasts) == [(6, 1)] * 2


def read_stream(stream, **options):
    return len(list(training.batches(stream, **options)))


def test_a_sharded_stream_without_any_row_is_refused_on_all_ranks(ranks):
    read = functools.partial(read_stream, batch_size=4, sharded=True)
    answers = ranks.run(2, read, Uneven(0, 0))
    assert [type(answer) for answer in answers] == [InvalidInput] * 2
    read = functools.partial(read, drop_last=True)
    answers = ranks.run(2, read, Uneven(0, 3))
    assert all("the 3 rows" in str(answer) for answer in answers), answers


class Asks(IterableDataset):
    def __iter__(self):
        training.share()
        yield torch.zeros(1)


class Draws(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.tensor([random.random(), torch.rand(()).item()])


@pytest.fixture
def session():
    return sessions.begin()


@pytest.mark.parametrize("sharded", [False, True])
def test_stream_draws_the_same_numbers_in_each_run_and_none_of_the_training_s(session, sharded):
    def read(**options):
        reading = batches(Draws(), batch_size=3, sharded=sharded, **options)
        found = torch.cat([next(reading) for _ in range(4)])
        reading.close()
        return found

    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = read()
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, read())
    assert torch.equal(first, read(loader_workers=1))
    assert not torch.equal(first, read(seed=1))


@pytest.mark.parametrize(
    ("dataset", "options", "named"),
    [
        (Count(4), {"shuffle": True}, "shuffle=True"),
        (Count(4), {"batch_size": 0}, "batch_size=0"),
        (Count(4), {"loader_workers": 2}, "loader_workers=2.*sharded=True"),
        ([1, 2], {"sharded": True}, "sharded=True is for streams"),
    ],
)
def test_options_that_do_not_suit_a_stream_are_refused(session, dataset, options, named):
    with pytest.raises(InvalidRequest, match=named):
        batches(dataset, **({"batch_size": 2} | options))


def test_stream_that_shares_itself_out_without_being_said_to_is_refused(session):
    with pytest.raises(InvalidRequest, match="pass sharded=True"):
        next(batches(Asks(), batch_size=1))


def test_state_that_no_checkpoint_could_keep_is_refused_before_the_first_step(session):
    class Keeps(Count):
        def state_dict(self):
            return {"rng": random.Random()}

        def load_state_dict(self, state):
            pass

    with pytest.raises(InvalidRequest, match="state_dict.* plain values"):
        next(batches(Keeps(4), batch_size=1))


def test_two_streams_in_one_epoch_are_refused_with_what_makes_them_one(session):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, loss=torch.nn.functional.mse_loss)
    epochs = training.epochs(1)
    next(epochs)
    for batch in batches(Count(8), batch_size=4):
        training.step(batch)
    reading = batches(Count(8), batch_size=4, seed=1)
    other = next(reading)
    with pytest.raises(InvalidRequest, match=r"a loop over a stream: .*ChainDataset"):
        training.step(other)
    reading.close()
    epochs.close()


def test_shares_draw_different_numbers_for_their_batches(session):
    def draw(samples):
        return torch.rand(4)

    reading = batches(Count(20), batch_size=2, sharded=True, loader_workers=2, collate=draw)
    first, second = next(reading), next(reading)
    reading.close()
    assert not torch.equal(first, second)


def test_one_rank_makes_its_first_batch_once(session):
    made = []
    assert len(list(batches(Count(4), batch_size=2, collate=made.append))) == 2
    assert len(made) == 2


class Takes(torch.nn.Linear):
    def forward(self, rows, name, other):
        return super().forward(rows)


def step_on_objects(name):
    """Take a step on the same stream as all ranks, whose batches have an object, and one name."""

    def collate(samples):
        rows, targets = map(torch.stack, zip(*samples, strict=True))
        return rows, name + str(training.rank() % len(name)), object(), targets

    model = Takes(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, loss=torch.nn.functional.mse_loss)
    reading = training.batches(Count(20), batch_size=4, collate=collate)
    training.step(next(reading))
    reading.close()
    return ["well"]


def test_streams_are_compared_by_what_equal_rows_have_alike(ranks):
    assert ranks.run(2, step_on_objects, "a") == [["well"]] * 2
    assert all("pass sharded=True" in str(each) for each in ranks.run(2, step_on_objects, "ab"))


@pytest.mark.parametrize(("rows", "drop_last"), [(0, False), (3, True)])
def test_stream_that_makes_no_batch_is_refused(session, rows, drop_last):
    with pytest.raises(InvalidInput, match=rf"the {rows} rows of the stream .* no batch of 4"):
        list(batches(Count(rows), batch_size=4, drop_last=drop_last))


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [4, 4, 2]), (True, [4, 4])])
def test_drop_last_leaves_out_the_batch_of_a_stream_that_is_smaller(session, drop_last, sizes):
    read = list(batches(Count(10), batch_size=4, drop_last=drop_last))
    assert [len(batch[0]) for batch in read] == sizes
