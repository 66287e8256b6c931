"""The lease that all machines share: one holder at a time, whatever is lost on the way."""

import json

import pytest

from raysm.errors import InvalidConfig, ServiceError
from raysm.grid.database import LeaseLost
from raysm.grid.shared.lease import HEAD, LEASE_S, RENEW_S, SURE_S, Elapsed, Head, SharedLease, read_head
from tests.support.grid_world import Clock
from tests.support.shared_grids import FakeObjects

__all__: list[str] = []


A_HEAD = Head(run="abc234", owner="[host]", holder="x", fence=3, is_held=True, serial=9, number=2, copy="copies/2")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"format": 2}', A_HEAD.content().replace(b'"fence"', b'"fences"')]
)
def test_what_is_no_head_is_refused(content):
    with pytest.raises(InvalidConfig, match="grid's copy"):
        read_head(content)


def test_another_format_is_not_touched():
    with pytest.raises(InvalidConfig, match="written by another raysm"):
        read_head(json.dumps(json.loads(A_HEAD.content()) | {"format": 3}).encode())


class Clocks:
    def __init__(self):
        self.steady, self.wall = 100.0, 1_800_000_000.0

    def elapsed(self):
        return Elapsed(lambda: self.steady, lambda: self.wall)


def test_it_counts_what_passes():
    clocks = Clocks()
    elapsed = clocks.elapsed()
    clocks.steady += 3
    clocks.wall += 3
    assert (elapsed(), elapsed()) == (3, 3)


def test_a_machine_that_slept_has_not_stood_still():
    clocks = Clocks()
    elapsed = clocks.elapsed()
    clocks.wall += 3600
    assert elapsed() == 3600


def test_a_clock_that_is_set_back_takes_nothing_away():
    clocks = Clocks()
    elapsed = clocks.elapsed()
    clocks.steady += 5
    clocks.wall -= 3600
    assert elapsed() == 5
    clocks.steady += 1
    clocks.wall += 1
    assert elapsed() == 6


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def objects(clock):
    return FakeObjects(clock)


@pytest.fixture
def leases(clock, objects):
    return [SharedLease(objects, name, lambda: clock.now) for name in ("first", "second")]


def test_one_machine_has_it_and_the_other_one_is_told_which(leases):
    first, second = leases
    first.take()
    with pytest.raises(LeaseLost, match="is run by first; try again when it has ended"):
        second.take()


def test_what_is_let_go_of_is_taken_at_once_under_the_next_number(leases):
    first, second = leases
    first.take()
    first.release()
    second.take()
    assert (first.head.fence, second.head.fence) == (1, 2)


def test_who_is_silent_has_lost_it_and_is_told_when_it_writes(leases, clock, objects):
    first, second = leases
    first.take()
    clock.now += LEASE_S
    second.take()
    with pytest.raises(LeaseLost, match="is run by second: this process stops running it"):
        first.write(number=7)
    assert read_head(objects.read(HEAD).content) == second.head


def test_the_holder_is_sure_for_less_long_than_the_other_one_waits(leases, clock):
    first, _ = leases
    first.take()
    clock.now += SURE_S
    assert first.silence_s == SURE_S
    # What was begun at the last moment has to be over before the other one begins.
    assert LEASE_S - SURE_S >= 15


def test_whoever_waits_takes_it_once_its_time_is_over(leases, clock):
    first, second = leases
    first.take()
    began = clock.now
    second.take(lambda seconds: setattr(clock, "now", clock.now + seconds))
    assert clock.now - began == LEASE_S
    assert second.head.fence == 2


def test_whoever_waits_sees_at_the_next_write_that_the_holder_lives(leases, clock):
    first, second = leases
    first.take()
    began = clock.now

    def sleep(seconds):
        clock.now += seconds
        if first.silence_s >= RENEW_S:
            first.write()

    with pytest.raises(LeaseLost):
        second.take(sleep)
    assert clock.now - began <= 2 * RENEW_S


def test_of_two_that_take_it_at_one_moment_one_does(leases, objects):
    first, second = leases
    replace = objects.replace

    def outrun(*write):
        # Both have read that there is none; the second one's write comes first.
        objects.replace = replace
        second.take()
        return replace(*write)

    objects.replace = outrun
    with pytest.raises(LeaseLost, match="is run by second"):
        first.take()


def test_a_write_whose_answer_is_lost_is_known_by_its_content(leases, objects, clock):
    first, _ = leases
    first.take()
    objects.lost = 1
    with pytest.raises(ServiceError):
        first.write(number=1)
    clock.now += 1
    first.write(number=2)
    assert read_head(objects.read(HEAD).content) == first.head
    assert first.head.number == 2


def test_a_write_that_is_carried_out_and_refused_when_it_is_repeated_was_this_ones(leases, objects):
    first, _ = leases
    first.take()
    replace = objects.replace

    def repeated(name, content, version):
        # As botocore does it: the first answer was lost, and the second call finds what the first one wrote.
        replace(name, content, version)
        return replace(name, content, version)

    objects.replace = repeated
    first.write(number=1)
    assert read_head(objects.read(HEAD).content) == first.head
