"""How long to try again, and how fast."""

from raysm.client.tunnel.patience import PATIENCE_S, Patience


def test_pauses_grow_up_to_some_seconds():
    patience, pauses = Patience(), []
    for second in range(9):
        patience.failed(second)
        pauses.append(patience.pause_s)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_who_has_not_failed_is_not_held_up():
    patience = Patience()
    assert patience.pause_s == 0
    assert not patience.is_over(1e9)


def test_it_is_over_some_minutes_after_the_first_failure_of_a_row():
    patience = Patience()
    patience.failed(10.0)
    patience.failed(10.0 + PATIENCE_S)
    assert not patience.is_over(10.0 + PATIENCE_S)
    assert patience.is_over(10.1 + PATIENCE_S)


def test_a_success_forgets_what_failed():
    patience = Patience()
    patience.failed(0.0)
    patience.succeeded()
    assert patience.pause_s == 0
    assert not patience.is_over(1e9)
    patience.failed(1000.0)
    assert patience.pause_s == 0.1
    assert not patience.is_over(1000.0 + PATIENCE_S)
