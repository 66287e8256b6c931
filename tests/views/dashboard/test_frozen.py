"""The dashboard of a job that has ended, from what its head left."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from raysm.contract.dashboard_record import TASKS, DashboardRecord, task_summaries
from raysm.views.dashboard.assets import installed_build
from raysm.views.dashboard.frozen import FrozenPart, FrozenSite, KeptFiles, banner_of, derived
from raysm.views.dashboard.parts import PageRequest
from tests.support.dashboard_head import NODES

TASK_LIST = [{"task_id": "t1", "job_id": "01"}, {"task_id": "t2", "job_id": "02"}]

ANSWERS = {
    "api/jobs/": [{"job_id": "01", "submission_id": None}, {"job_id": None, "submission_id": "raysubmit_x"}],
    "logical/actors": {"data": {"actors": {"ac7": {"state": "DEAD"}}}},
    "nodes?view=summary": NODES,
    TASKS: {"result": True, "data": {"result": {"result": TASK_LIST, "total": 2, "num_filtered": 2}}},
    task_summaries("01")[0]: {"by": "name"},
    task_summaries("01")[1]: {"by": "lineage"},
    "events": {"result": True, "data": {"events": {}}},
    "api/v0/placement_groups?detail=1&limit=1000": {"groups": []},
}

RECORD = DashboardRecord(time_s=1_700_000_000.0, answers=ANSWERS)


def frozen(path, query="", method="GET", lines=("first", "second")):
    part = FrozenPart(RECORD, {"algo-1": lines}.__getitem__)
    return asyncio.run(part.answer(PageRequest(path=path, query=query, request=SimpleNamespace(method=method))))


def test_what_was_kept_is_answered_as_it_was():
    assert json.loads(frozen("api/jobs/").body) == ANSWERS["api/jobs/"]
    assert json.loads(frozen("nodes", "view=summary").body) == NODES


@pytest.mark.parametrize(("name", "index"), [("01", 0), ("raysubmit_x", 1)])
def test_a_job_is_known_by_either_of_its_names(name, index):
    assert derived(ANSWERS, f"api/jobs/{name}", "") == ANSWERS["api/jobs/"][index]


def test_an_actor_is_the_one_of_the_list():
    assert derived(ANSWERS, "logical/actors/ac7", "")["data"]["detail"] == {"state": "DEAD"}


def test_a_node_is_the_one_of_the_list_without_its_workers():
    detail = derived(ANSWERS, "nodes/ab12", "")["data"]["detail"]
    assert (detail["hostname"], detail["workers"], detail["actors"]) == ("machine", [], {})


def test_the_tasks_of_one_job_are_those_of_the_list():
    query = "detail=1&limit=10000&filter_keys=job_id&filter_predicates=%3D&filter_values=02"
    result = derived(ANSWERS, "api/v0/tasks", query)["data"]["result"]
    assert result == {"result": [TASK_LIST[1]], "total": 2, "num_filtered": 1}
    assert len(derived(ANSWERS, "api/v0/tasks", "detail=1&limit=10000")["data"]["result"]["result"]) == 2


def test_the_progress_of_a_job_is_kept_by_name_and_by_lineage():
    query = "filter_keys=job_id&filter_predicates=%3D&filter_values=01"
    assert derived(ANSWERS, "api/v0/tasks/summarize", query) == {"by": "name"}
    assert derived(ANSWERS, "api/v0/tasks/summarize", f"{query}&summary_by=lineage") == {"by": "lineage"}


def test_what_is_asked_with_another_limit_is_the_same():
    assert derived(ANSWERS, "api/v0/placement_groups", "detail=1&limit=10000") == {"groups": []}
    assert derived(ANSWERS, "events", "job_id=01") == ANSWERS["events"]


@pytest.mark.parametrize("path", ["api/jobs/no", "logical/actors/no", "nodes/no", "api/v0/tasks/timeline", "nonsense"])
def test_what_was_not_kept_is_said_not_to_be_there_and_asks_for_no_token(path):
    answer = frozen(path)
    assert answer.status == 404
    assert json.loads(answer.body)["msg"] == "this was not kept when the job ended"


def test_of_a_record_that_has_almost_nothing_nothing_fails():
    for path in ("api/jobs/x", "logical/actors/x", "nodes/x", "api/v0/tasks", "events", "api/v0/placement_groups"):
        assert derived({}, path, "") is None
    assert derived({}, "api/v0/logs", "node_id=x")["data"]["result"] == {}


def test_nobody_is_asked_for_a_token():
    assert derived({}, "api/authentication_mode", "") == {"authentication_mode": "disabled"}


def test_nothing_can_be_changed_any_more():
    answer = frozen("api/jobs/", method="POST")
    assert (answer.status, json.loads(answer.body)["msg"]) == (405, "the job has ended")


def test_an_instances_log_is_listed_and_shown():
    assert derived(ANSWERS, "api/v0/logs", "node_id=ab12")["data"]["result"] == {"instance": ["algo-1.log"]}
    assert (
        frozen("api/v0/logs/file", "node_id=ab12&filename=algo-1.log&lines=50000").text
        == "What algo-1 wrote:\nfirst\nsecond"
    )


def test_a_log_of_one_event_is_not_taken_for_json():
    # Ray's page asks by axios, which makes a value of what is JSON as a whole; the page shows texts alone.
    text = frozen("api/v0/logs/file", "node_id=ab12&filename=algo-1.log", lines=['{"name": "joined"}']).text
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(text)


def test_of_an_instance_that_wrote_nothing_that_is_said():
    assert frozen("api/v0/logs/file", "node_id=ab12&filename=algo-1.log", lines=[]).text == "algo-1 wrote nothing."


def test_of_a_long_log_the_end_is_shown():
    text = frozen("api/v0/logs/file", "node_id=ab12&filename=algo-1.log", lines=[str(n) for n in range(60_000)]).text
    assert text.startswith("What algo-1 wrote:\n10000\n")
    assert text.endswith("\n59999")


def test_another_log_is_said_to_be_gone():
    assert "ended with its cluster" in frozen("api/v0/logs/file", "actor_id=ac7&suffix=out").text


def test_the_page_says_that_the_job_has_ended():
    banner = banner_of("<b>digits</b>", "Completed", RECORD)
    assert "2023-11-14 22:13:20 UTC" in banner
    part = KeptFiles(installed_build(), banner)
    asked = PageRequest(path="", query="", request=SimpleNamespace(method="GET"))
    page = asyncio.run(part.answer(asked)).text
    assert "&lt;b&gt;digits" in page
    assert page.index('role="status"') < page.index('<div id="root">')


def test_the_pages_files_come_from_the_installed_ray_and_nothing_else_does():
    part = KeptFiles(installed_build(), "")
    for path, is_there in (("static/js/none.js", False), ("api/jobs/", False), ("../LICENSE", False)):
        asked = PageRequest(path=path, query="", request=SimpleNamespace(method="GET"))
        assert (asyncio.run(part.answer(asked)) is not None) == is_there


def test_a_site_of_nothing_has_no_answer():
    site = FrozenSite([])

    async def live():
        await site.begin()
        answer = await site.answer(PageRequest(path="", query="", request=SimpleNamespace(method="GET")))
        await site.end()
        return answer

    assert asyncio.run(live()) is None
