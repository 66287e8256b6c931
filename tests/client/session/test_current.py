"""The session inside of which a program is."""

from raysm.client.session.current import current_session, inside


def test_the_block_that_was_entered_last_counts():
    assert current_session() is None
    with inside("one"):
        with inside("two"):
            assert current_session() == "two"
        assert current_session() == "one"
    assert current_session() is None


def test_blocks_of_two_threads_may_end_in_any_order():
    first, second = inside("one"), inside("two")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert current_session() == "two"
    second.__exit__(None, None, None)
    assert current_session() is None
