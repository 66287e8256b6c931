"""A function over many items: batches, their order, their failures, and how many are under way."""

import pickle
import threading

import cloudpickle
import pytest

from raysm.client.session.calls import Line
from raysm.client.session.mapping import MAX_GROWTH, MAX_ITEMS, BatchSize, Mapped
from raysm.contract.session import Outcome, RemoteError
from raysm.errors import SessionEnded


class Batch:
    """A call that ends when the test says so."""

    def __init__(self, first, items, encoded):
        self.first, self.items, self.encoded = first, items, encoded
        self.callbacks, self.is_done, self.is_cancelled = [], False, False

    def add_done_callback(self, fn):
        self.callbacks.append(fn)
        if self.is_done:
            fn(self)

    def end(self):
        self.is_done = True
        for fn in self.callbacks:
            fn(self)

    def done(self):
        return self.is_done

    def cancel(self):
        self.is_cancelled = True

    def outcome(self):
        return None, Outcome(pickled=pickle.dumps((0.001, self.encoded)))


class Session:
    """Sends batches to nobody, and doubles their items."""

    def __init__(self, fails=(), ends_at_once=True):
        self.fails, self.ends_at_once, self.batches = fails, ends_at_once, []

    def submit(self, first, content):
        items = [pickle.loads(item) for item in pickle.loads(content)]
        batch = Batch(first, items, [self.encoded(number, item) for number, item in enumerate(items, first)])
        self.batches.append(batch)
        if self.ends_at_once:
            batch.end()
        return batch

    def encoded(self, number, item):
        if item in self.fails:
            error = RemoteError(type="ValueError", message="no good", item=number)
            return Outcome(error=error, pickled=pickle.dumps(ValueError("no good"))).encode()
        return Outcome(pickled=pickle.dumps(2 * item)).encode()

    def map(self, items, window=3, **options):
        return Mapped(
            items,
            self.submit,
            lambda item, what: cloudpickle.dumps(item),
            window=window,
            name="score",
            line=Line(loop=None, wire=None, session="digits"),
            **options,
        ).results()


def test_results_come_in_the_order_of_the_items_whatever_the_batches():
    session = Session()
    assert list(session.map(range(5000))) == [2 * item for item in range(5000)]
    assert [item for batch in session.batches for item in batch.items] == list(range(5000))
    assert len(session.batches) < 100
    assert list(Session().map([])) == []


def test_no_more_batches_are_under_way_than_there_is_room_and_items_are_taken_one_by_one():
    session, taken = Session(ends_at_once=False), []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    results = session.map(items(), window=3)
    ended = threading.Timer(0.1, lambda: session.batches[0].end())
    ended.start()
    assert next(results) == 0
    ended.join()
    assert (len(session.batches), taken) == (3, [0, 1, 2])
    results.close()
    assert [batch.is_cancelled for batch in session.batches] == [False, True, True]


@pytest.mark.parametrize(("ordered", "ends", "results"), [(False, (2, 0, 1), [6, 2, 4]), (True, (2, 1, 0), [2, 4, 6])])
def test_results_come_as_they_are_finished_or_in_order(ordered, ends, results):
    session = Session(ends_at_once=False)
    mapped = session.map([1, 2, 3], ordered=ordered)
    timer = threading.Timer(0.1, lambda: [session.batches[number].end() for number in ends])
    timer.start()
    assert list(mapped) == results
    timer.join()


def test_the_first_failure_ends_the_map_and_names_its_item():
    session = Session(fails=[7])
    results = session.map(range(20))
    assert [next(results) for _ in range(7)] == [0, 2, 4, 6, 8, 10, 12]
    with pytest.raises(ValueError, match="no good") as raised:
        next(results)
    assert "item 7: 7" in raised.value.__notes__


def test_a_batch_that_cannot_be_cancelled_hides_neither_the_failure_nor_those_behind_it():
    class Away(Session):
        def submit(self, first, content):
            batch = super().submit(first, content)
            if first == 0:
                batch.end()
            else:
                batch.cancel = lambda: self.refuse(batch)
            return batch

        def refuse(self, batch):
            Batch.cancel(batch)
            raise SessionEnded("the head is away")

    session = Away(fails=[0], ends_at_once=False)
    with pytest.raises(ValueError, match="no good"):
        list(session.map(range(20)))
    assert [batch.is_cancelled for batch in session.batches] == [False, True, True]


def test_an_exception_is_a_result_where_that_is_asked_for():
    results = list(Session(fails=[1]).map(range(3), return_exceptions=True))
    assert (results[0], str(results[1]), results[2]) == (0, "no good", 4)


def test_a_batch_that_could_not_be_worked_on_is_a_failure_of_the_map():
    class Refusing(Session):
        def submit(self, first, content):
            batch = super().submit(first, content)
            batch.outcome = lambda: (None, Outcome(error=RemoteError(type="InvalidRequest", message="was not sent")))
            return batch

    with pytest.raises(Exception, match="was not sent"):
        list(Refusing().map([1]))


def test_batches_grow_until_they_take_a_fraction_of_a_second():
    size = BatchSize()
    for items, took_s, expected in ((1, 0.001, MAX_GROWTH), (8, 0.008, 64), (64, 0.064, 200)):
        size.learn(items, took_s)
        assert size.items == expected
    size = BatchSize()
    size.learn(1, 60.0)
    assert size.items == 1
    # One slow batch at most halves the size.
    for _ in range(10):
        size.learn(size.items, 1e-9)
    assert size.items == MAX_ITEMS
    size.learn(size.items, 100.0)
    assert size.items == MAX_ITEMS // 2
