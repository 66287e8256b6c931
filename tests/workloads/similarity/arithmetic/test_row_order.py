from raysm.workloads.similarity.arithmetic.tiling import RowOrder, RowRun


def test_rows_that_lie_whole_lie_as_they_are_numbered():
    assert list(RowOrder.identity(10).between(3, 7)) == [RowRun(3, 3, 4)]


def test_a_range_of_numbers_is_found_in_the_places_of_all_who_have_some_of_it():
    # The first instance has rows 0 to 3 and 6 to 9, the second one 3 to 6.
    order = RowOrder.of([RowRun(6, 3, 3), RowRun(3, 6, 3), RowRun(0, 0, 3)])
    assert list(order.between(2, 8)) == [RowRun(2, 2, 1), RowRun(3, 6, 3), RowRun(6, 3, 2)]
    assert list(order.between(9, 20)) == []
