"""A training on a stream, which says which rows its steps learned from, and can be interrupted."""

import argparse
import io
import random
import tarfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, IterableDataset

from raysm import training
from raysm.features.training.cluster.loop import session as sessions
from tests.support.trainee import hold

LENGTHS = [7, 0, 19, 4, 11, 1, 8, 13, 5]
"""Rows of the files: 68."""
ROWS = sum(LENGTHS)


def write_tars(folder):
    """Write tar files whose members are the numbers of their rows."""
    row = 0
    for number, length in enumerate(LENGTHS):
        with tarfile.open(folder / f"{number:03}.tar", "w") as tar:
            for _ in range(length):
                member = tarfile.TarInfo(f"{row:06}.txt")
                member.size = len(str(row))
                tar.addfile(member, io.BytesIO(str(row).encode()))
                row += 1


def row_of(number):
    return torch.tensor([number / 100]), torch.tensor([number])


def rows_of_tar(path):
    with tarfile.open(path) as tar:
        for member in tar:
            yield int(tar.extractfile(member).read())


class Buffered(IterableDataset):
    """All rows, through a buffer from which they are drawn at random."""

    def __iter__(self):
        buffer = []
        for number in range(ROWS):
            buffer.append(number)
            if len(buffer) == 10:
                yield row_of(buffer.pop(random.randrange(10)))
        while buffer:
            yield row_of(buffer.pop(int(torch.randint(len(buffer), ()))))


class Tars(IterableDataset):
    """A share of tar files, in an order that each epoch draws."""

    def __init__(self, folder):
        self.folder = folder

    def __iter__(self):
        for path in self.paths():
            for number in rows_of_tar(path):
                yield row_of(number)

    def paths(self):
        paths = sorted(self.folder.glob("*.tar"))
        random.shuffle(paths)
        number, count = training.share()
        return paths[number::count]


class TarsWithState(Tars):
    """Knows where it is: a resume opens no tar before that, which another test counts."""

    def __init__(self, folder):
        super().__init__(folder)
        self.epoch = 0
        self.begin = self.at = (0, 0)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def state_dict(self):
        return {"at": self.at, "weights": torch.ones(2)}

    def load_state_dict(self, state):
        self.begin = tuple(state["at"])

    def __iter__(self):
        (first, row), self.begin = self.begin, (0, 0)
        random.seed(self.epoch)
        paths = self.paths()
        for number in range(first, len(paths)):
            with Path(f"{self.folder}/opened").open("a") as opened:
                opened.write(f"{paths[number].name}\n")
            for at, found in enumerate(rows_of_tar(paths[number])):
                if number > first or at >= row:
                    self.at = (number, at + 1)
                    yield row_of(found)


def tars_of_webdataset(folder):
    import webdataset

    def share_out(urls):
        number, count = training.share()
        yield from list(urls)[number::count]

    paths = [str(path) for path in sorted(folder.glob("*.tar"))]
    return webdataset.WebDataset(
        paths, shardshuffle=False, nodesplitter=share_out, workersplitter=None, empty_check=False
    ).map(lambda sample: row_of(int(sample["txt"])))


class Numbers(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return row_of(row)


DATA = {
    "whole": lambda folder: Buffered(),
    "sharded": Tars,
    "stateful": TarsWithState,
    "webdataset": tars_of_webdataset,
    "rows": lambda folder: Numbers(),
}


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=DATA)
    parser.add_argument("folder", type=Path, help="of the tar files")
    parser.add_argument("learned", type=Path, help="a folder for what each rank learned from")
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--loader-workers", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--hold", type=int, help="after this step wait to be stopped or killed")
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    session = sessions.current()
    kept = None
    if given.checkpoints:
        kept = training.Checkpoints(every_steps=3, folder=given.checkpoints)
    training.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        loss=lambda output, target: functional.mse_loss(output, target / 100),
        checkpoints=kept,
    )
    batches = training.batches(
        DATA[given.data](given.folder),
        batch_size=given.batch_size,
        epochs=2,
        seed=3,
        sharded=given.data not in ("whole", "rows"),
        loader_workers=given.loader_workers,
        persistent_workers=given.loader_workers > 0,
    )
    with (given.learned / f"rank-{session.rank}").open("a") as learned:
        for batch in batches:
            position = session.position
            rows = batch[1].flatten().tolist() if session.share else []
            # Before the step, which ends this process if it was told to stop.
            learned.write(f"{position.steps + 1} {position.current.epoch} {rows}\n")
            learned.flush()
            training.step(batch)
            if position.steps == given.hold:
                hold(session, given.checkpoints)
    training.save_model(given.learned)
    sessions.end()
    if dist.is_initialized():
        dist.destroy_process_group()
