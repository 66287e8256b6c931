"""The parts of a page are asked one after the other."""

import asyncio
from types import SimpleNamespace

from raysm.views.dashboard.parts import PageRequest, answer_of


class Knows:
    def __init__(self, path, answer):
        self.path, self.result, self.asked = path, answer, 0

    async def answer(self, asked):
        self.asked += 1
        return self.result if asked.path == self.path else None


def asked(path, query="", method="GET"):
    return PageRequest(path=path, query=query, request=SimpleNamespace(method=method))


def test_the_first_that_has_an_answer_answers():
    first, second, third = Knows("a", 1), Knows("b", 2), Knows("b", 3)
    assert asyncio.run(answer_of([first, second, third], asked("b"))) == 2
    assert (first.asked, second.asked, third.asked) == (1, 1, 0)


def test_what_nobody_knows_has_no_answer():
    assert asyncio.run(answer_of([Knows("a", 1)], asked("b"))) is None


def test_an_answer_is_known_by_path_and_query():
    assert asked("nodes", "view=summary").key == "nodes?view=summary"
    assert asked("api/jobs/").key == "api/jobs/"


def test_only_what_changes_nothing_reads():
    assert [asked("a", method=method).only_reads for method in ("GET", "HEAD", "POST")] == [True, True, False]
