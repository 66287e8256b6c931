"""Waiting for what no event tells."""

import time


def until(condition, timeout_s=300.0, why=lambda: "", pause_s=0.02):
    """Wait until ``condition()`` is true, and return it; ``why()`` says after ``timeout_s`` what there is instead."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {why()}"
        time.sleep(pause_s)
    return value


def until_line(job, text, timeout_s=300.0):
    """Wait for a line of a job that holds ``text``, and return it; a job that ends without one fails the test."""

    def look():
        has_ended, lines = job.done(), list(job.lines())
        found = next((line for line in lines if text in line.text), None)
        assert found or not has_ended, (job.exception(), [line.text for line in lines])
        return found

    return until(look, timeout_s, lambda: [line.text for line in job.lines()], 0.1)
