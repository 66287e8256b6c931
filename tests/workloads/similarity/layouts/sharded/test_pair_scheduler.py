import random

import pytest

from raysm.workloads.blocks import LATER, RowBlock, TileBlock
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import LEAVING, WINDOW, Feed, meetings
from raysm.workloads.similarity.layouts.sharded.schedule import deal, traffic
from tests.support.shards import shares


class Store:
    """Parcels that are under way or being met, as Ray would hold them."""

    def __init__(self):
        self.sent = []

    def __call__(self, parcel):
        self.sent.append(parcel)
        return parcel


def drained(feed, seed=0, again=lambda meeting: ()):
    """Take meetings as tasks would, finishing them in any order; return them, and the most visitors there were."""
    rng = random.Random(seed)
    running, done, here, away = [], [], 0, 0
    while True:
        meeting = LATER if len(running) >= feed.in_flight else next(feed, None)
        if meeting is None:
            assert not running
            return done, here, away
        if meeting is not LATER:
            running.append(meeting)
            coming = {(one.host, one.inputs[0]) for one in running if one.inputs}
            for host in {one.host for one in running}:
                here = max(here, sum(where == host for where, _ in coming))
                away = max(away, sum(parcel.host == host for _, parcel in coming))
        if meeting is LATER or rng.random() < 0.4:
            finished = running.pop(rng.randrange(len(running)))
            done.append(finished)
            feed.finished(finished, again(finished))


ROWS = [([9000] * 3, [2] * 3), ([4000, 9000, 0, 7000], [1, 4, 2, 2]), ([5000] * 6, [2] * 6), ([900], [3])]


@pytest.mark.parametrize(("rows", "slots"), ROWS)
@pytest.mark.parametrize("seed", range(3))
def test_every_meeting_is_held_once_with_few_visitors_at_a_time(rows, slots, seed):
    given = shares(rows, slots)
    visits = deal(given)
    store = Store()
    feed = Feed(visits, {share.host: share.slots for share in given}, store)
    done, here, away = drained(feed, seed)
    expected = [meeting for there in visits.values() for visit in there for meeting in meetings(visit)]
    assert sorted(map(str, done)) == sorted(map(str, expected))
    assert all((meeting.inputs == ()) == (meeting.visitor is None) for meeting in done)
    assert here <= WINDOW
    assert away <= LEAVING
    counted = traffic(visits)
    assert dict(feed.sent) == {host: rows for host, rows in counted.sent.items() if rows}
    assert dict(feed.received) == {host: rows for host, rows in counted.received.items() if rows}
    assert len(store.sent) == sum(not visit.at_home for there in visits.values() for visit in there)


def test_rows_that_nobody_needs_any_more_do_not_travel():
    given = shares([3000] * 3)
    store = Store()
    slots = {share.host: 2 for share in given}
    found, _, _ = drained(Feed(deal(given), slots, store, found=lambda meeting: True))
    assert len(found) == 78
    assert not store.sent
    assert drained(Feed(deal(given), slots, store, skip=lambda meeting: True)) == ([], 0, 0)


def test_a_crowded_meeting_is_held_again_in_pieces_while_its_visitor_stays():
    given = shares([3000] * 3)
    store = Store()
    visits = deal(given)
    piece = TileBlock(RowBlock(0, 10), RowBlock(0, 10))
    crowded = {str(visit.parcel) for there in visits.values() for visit in there if not visit.at_home}

    def again(meeting):
        return [piece] if meeting.visitor and meeting.piece is None and str(meeting.visitor) in crowded else []

    done, _, _ = drained(Feed(visits, {share.host: 2 for share in given}, store), again=again)
    pieces = [meeting for meeting in done if meeting.piece]
    assert len(pieces) == sum(meeting.visitor is not None and not meeting.piece for meeting in done) > 0
    assert all(meeting.inputs for meeting in pieces)
    assert len(store.sent) == len(set(store.sent)) == 12


def test_a_meeting_says_who_else_has_to_be_there():
    visits = deal(shares([300, 300, 300]))
    (coming,) = [visit for visit in visits["algo-1"] if not visit.at_home]
    (meeting,) = meetings(coming)
    assert (meeting.host, meeting.needs) == ("algo-1", ("algo-2",))
