"""The peak of an instance's memory."""

from raysm.bootstrap.memory import PeakMemory, used_bytes

KIB = 1024


def process(root, pid, anonymous, shared, mapped):
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "status").write_text(
        f"Name:\tx\nVmRSS:\t1 kB\nRssAnon:\t{anonymous} kB\nRssFile:\t{mapped} kB\nRssShmem:\t{shared} kB\n"
    )


def test_anonymous_memory_adds_up_and_shared_memory_counts_once(tmp_path):
    process(tmp_path, 1, anonymous=100, shared=70, mapped=5000)
    process(tmp_path, 2, anonymous=10, shared=90, mapped=5000)
    assert used_bytes([1, 2, 3], tmp_path) == (100 + 10 + 90) * KIB


def test_the_peak_is_the_largest_that_was_seen():
    seen = iter([5, 9, 7])
    peak = PeakMemory(lambda: next(seen))
    for _ in range(3):
        peak.sample()
    assert peak.bytes == 9


def test_this_process_uses_some():
    peak = PeakMemory()
    peak.sample()
    assert peak.bytes > 2**20
