"""SIGTERM in the driver of a training."""

import os
import signal

import pytest

from raysm.workloads.training.launch.attempts import MARGIN_S, Stop, Stopped, grace_of_workers


def test_a_stop_is_noted_and_the_handler_before_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with Stop() as stop:
        assert not stop.asked
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.asked
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_library_that_takes_the_signal_loses_it_again():
    with Stop() as stop:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stop.listen()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.asked


def test_who_sleeps_hears_of_a_stop():
    stop = Stop()
    stop.sleep(0.0)
    stop.asked = True
    with pytest.raises(Stopped) as stopped:
        stop.sleep(3600.0)
    assert not stopped.value.clean


@pytest.mark.parametrize(("grace_s", "of_workers"), [(100.0, 100.0 - MARGIN_S), (6.0, 3.0), (0.0, 0.0)])
def test_the_driver_keeps_some_of_its_grace_to_bring_the_model(grace_s, of_workers):
    assert grace_of_workers(grace_s) == of_workers
