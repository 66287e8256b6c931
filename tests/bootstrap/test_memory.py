"""The peak of an instance's memory."""

from raysm.bootstrap.resources import PeakMemory, used_bytes

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


def test_a_process_whose_name_is_cut_inside_a_letter_counts_too(tmp_path):
    process(tmp_path, 1, anonymous=100, shared=0, mapped=0)
    status = tmp_path / "proc" / "1" / "status"
    status.write_bytes(status.read_bytes().replace(b"Name:\tx", b"Name:\tw\xc3"))
    assert used_bytes([1], tmp_path) == 100 * KIB


def test_a_look_that_fails_is_passed_over():
    def look():
        if not peak.bytes:
            return 5
        raise ValueError("no such field")

    peak = PeakMemory(look)
    peak.sample()
    peak.sample()
    assert peak.bytes == 5


def test_this_process_uses_some():
    peak = PeakMemory()
    peak.sample()
    assert peak.bytes > 2**20
