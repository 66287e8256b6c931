"""One piece in its process."""

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.workloads.batch.part import ahead, parquet_of


def test_items_are_made_ahead_and_come_in_their_order():
    made = []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    assert list(ahead(items(), 2)) == list(range(20))
    assert made == list(range(20))


def test_no_more_are_made_than_there_is_room_for():
    begun, made = threading.Event(), []

    def items():
        for number in range(100):
            made.append(number)
            if number == 2:
                begun.set()
            yield number

    some = ahead(items(), 2)
    assert next(some) == 0
    assert begun.wait(60)
    # One is taken, two wait, and one is in the hand of whoever reads.
    assert len(made) <= 4
    some.close()


def test_who_takes_no_more_ends_the_reading():
    closed = threading.Event()

    def items():
        try:
            yield from range(100)
        finally:
            closed.set()

    some = ahead(items(), 1)
    next(some)
    some.close()
    assert not any(thread.name == "reading-ahead" for thread in threading.enumerate())


def test_an_error_of_reading_is_raised_where_its_item_would_come():
    def items():
        yield 1
        raise ValueError("torn")

    some = ahead(items(), 2)
    assert next(some) == 1
    with pytest.raises(ValueError, match="torn"):
        next(some)


def test_the_same_rows_are_the_same_bytes(tmp_path):
    tables = [pa.table({"y": np.arange(5), "t": list("abcde")}) for _ in range(2)]
    first, second = map(parquet_of, tables)
    assert first == second
    (tmp_path / "p.parquet").write_bytes(first)
    assert pq.read_table(tmp_path / "p.parquet").equals(tables[0])
