"""What was read of jobs that have ended, kept on this machine."""

import threading

import pytest

from raysm.client.experiments.listing import Cache, Reading
from tests.support.experiments import FULL, row


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "home" / "experiments" / "here.sqlite")


def read(job, trials=(), **curves):
    return Reading(row=job, curves=curves, trials=trials, is_final=True)


def kept(cache):
    return sorted(row.name for row in cache.rows().values())


def test_what_is_kept_comes_back_in_another_process(cache):
    cache.keep([read(FULL, loss=[(0, 1.0, 2.0), (None, 2.0, 0.5)])])
    again = Cache(cache._path)
    assert again.rows() == {"arn:1": FULL}
    assert again.curves("arn:1", ["loss", "accuracy"]) == {"loss": [(0, 1.0, 2.0), (None, 2.0, 0.5)]}
    assert again.curves("arn:1", ["loss"], "arn:1/3") == {}


def test_the_trials_of_a_sweep_are_kept_apart_and_forgotten_with_it(cache):
    trials = [row(name=f"digits-1/{number}", arn=f"arn:1/{number}", trial=number) for number in (0, 1, 10)]
    assert cache.trials() == {}
    cache.keep([read(FULL, trials), read(row(arn="arn:2"))])
    assert cache.rows().keys() == {"arn:1", "arn:2"}
    assert cache.trials() == {"arn:1": trials}
    cache.forget(["arn:1"])
    assert cache.trials() == {}


@pytest.mark.parametrize(
    "content", [b"this is no database, but long enough to be read as one" * 20, b"SQLite format 3\0torn"]
)
def test_a_torn_file_is_made_anew(cache, content):
    cache._path.parent.mkdir(parents=True)
    cache._path.write_bytes(content)
    assert cache.rows() == {}
    cache.keep([read(FULL)])
    assert kept(cache) == ["digits-1"]


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "here.sqlite")
    cache.keep([read(FULL)])
    assert cache.rows() == {}


def test_several_may_keep_at_once(cache):
    def keep(number):
        cache.keep([read(row(arn=f"arn:{number}:{job}", name=f"j{number}-{job}"), loss=[]) for job in range(5)])

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache.rows()) == 40
