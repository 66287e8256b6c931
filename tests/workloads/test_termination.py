import os
import signal
import time

import pytest

from raysm.workloads.termination import Termination


def terminated(*bodies):
    """Run the bodies one after the other in a Termination, which SIGTERM has to leave with code 143."""

    def run():
        with Termination() as termination:
            for body in bodies:
                body(termination)
            time.sleep(30)

    begin = time.monotonic()
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 143
    assert time.monotonic() - begin < 10


def kill(termination):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)


def test_sigterm_leaves_the_context_at_once():
    terminated(kill)


def test_a_signal_that_was_swallowed_comes_again():
    def swallow(termination):
        try:
            kill(termination)
        except SystemExit:
            pass  # As Ray does in the middle of a wait.

    terminated(swallow, swallow)


def test_what_the_signal_turned_into_does_not_matter():
    def translate(termination):
        try:
            kill(termination)
        except SystemExit:
            raise OSError("a broken wait") from None

    terminated(translate)


def test_a_handler_that_took_the_place_is_replaced_and_all_are_as_before_in_the_end():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)

    def replace(termination):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        termination.listen()

    terminated(replace, kill)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
