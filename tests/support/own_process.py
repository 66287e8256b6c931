"""A part of a test in a process of its own, forked: what it calls ends or reaps *every* child of its process."""

import asyncio
import faulthandler
import os
import pickle
import sys
import traceback
import warnings

MOST_S = 400
"""Seconds after which the process prints its stacks and ends: a test has 600."""


def run_apart(scenario):
    """Run a coroutine function in a forked process; return what it returned, or raise what it raised."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Of the threads that are not there afterwards: the child waits for none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(reader)
        _answer(scenario, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert answer, (
        f"the forked process ended without an answer: {os.waitstatus_to_exitcode(status)}"
    )
    result, error = pickle.loads(answer)
    if error is not None:
        raise error
    return result


def _answer(scenario, writer):
    """Be the child: nothing of the parent's ends of tests runs in it."""
    faulthandler.dump_traceback_later(MOST_S, exit=True, file=sys.__stderr__)
    try:
        try:
            answer = pickle.dumps((asyncio.run(scenario()), None))
        except BaseException as error:
            error.add_note(traceback.format_exc())
            answer = pickle.dumps((None, error))
        sys.stdout.flush()
        sys.stderr.flush()
        with open(writer, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
