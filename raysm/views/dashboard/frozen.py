"""The dashboard of a job that has ended: Ray's page over what the head kept of it, with a banner that says so.

What flows in is the record that the head left and the job's log, what flows out are the answers that Ray's page knows
how to show. Nothing of it can be changed, so nothing but reading is answered.
"""

import asyncio
import html
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from raysm.contract.dashboard_record import TASKS, DashboardRecord
from raysm.contract.names import LABEL_HOST
from raysm.contract.node_usage import NODES
from raysm.views.dashboard.assets import safe_name
from raysm.views.dashboard.parts import PageRequest, Part, answer_of

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["FrozenPart", "FrozenSite", "KeptFiles", "derived"]

# Where Ray's page begins, a React program; the banner stands before it, and survives what it draws.
ROOT = '<div id="root">'

LINES = 50_000
"""Of a log, the last ones: as many as Ray's page asks for."""

ReadLog = Callable[[str], Sequence[str]]
"""Returns the lines of an instance's log; may block."""


class FrozenSite:
    """What the proxy of a job that has ended shows."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Show these parts."""
        self._parts = parts

    async def begin(self) -> None:
        """Do nothing: nothing changes any more."""

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Answer with the first part that has an answer."""
        return await answer_of(self._parts, page_request)

    async def end(self) -> None:
        """Do nothing: nothing is open."""


class KeptFiles:
    """Answers for the files of Ray's page from a folder of this machine."""

    def __init__(self, folder: Path, banner: str) -> None:
        """Keep in mind where they lie, and what stands above the page."""
        self._folder, self._banner = folder, banner

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Answer with a file; with the page itself, under its banner."""
        from aiohttp import web

        if not page_request.path:
            # Read each time: it is small, and a dashboard is opened once.
            page = (self._folder / "index.html").read_text()
            return web.Response(text=with_banner(page, self._banner), content_type="text/html")
        name = safe_name(page_request.path)
        # A path that leads out of the folder has no safe name.
        if name is None or not (self._folder / name).is_file():
            return None
        return web.FileResponse(self._folder / name)


class FrozenPart:
    """Answers for the head, by what it left."""

    def __init__(self, record: DashboardRecord, read_log: ReadLog) -> None:
        """Answer by ``record``, and with the logs of instances that ``read_log`` returns."""
        self._answers, self._read_log = record.answers, read_log

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Answer as the head last did; 404 where it was not asked, 405 to what would change something."""
        from aiohttp import web

        # Before anything else: a POST to a path that was kept must not look as if it had worked.
        if not page_request.only_reads:
            return web.json_response({"result": False, "msg": "the job has ended"}, status=405)
        if page_request.path == "api/v0/logs/file":
            # In a thread: on AWS it reads CloudWatch Logs, which takes seconds.
            return web.Response(text=await asyncio.to_thread(self._log, page_request.query))
        answer = derived(self._answers, page_request.path, page_request.query)
        if answer is None:
            return web.json_response({"result": False, "msg": "this was not kept when the job ended"}, status=404)
        return web.json_response(answer)

    def _log(self, query: str) -> str:
        host = _hosts(self._answers).get(_first(query, "node_id"))
        if host is None or _first(query, "filename") != f"{host}.log":
            return "This log ended with its cluster. What the instance wrote stands under Logs."
        lines = self._read_log(host)[-LINES:]
        # Behind a line of ours: Ray's page takes what is JSON as a whole, a log of one event, for a failure to load.
        return "\n".join([f"What {host} wrote:", *lines]) if any(lines) else f"{host} wrote nothing."


def with_banner(page: str, banner: str) -> str:
    """Return Ray's page with a line of text above it."""
    look = (
        "padding:8px 16px;background:#fff4ce;color:#222;font:14px system-ui,sans-serif;border-bottom:1px solid #d9b200"
    )
    return page.replace(ROOT, f'<div role="status" style="{look}">{html.escape(banner)}</div>{ROOT}', 1)


def banner_of(name: str, status: str, record: DashboardRecord) -> str:
    """Return what stands above the page."""
    moment = datetime.fromtimestamp(record.time_s, UTC)
    return f"{name} has ended ({status}). This is its dashboard as it was last seen, {moment:%Y-%m-%d %H:%M:%S} UTC."


def derived(answers: Mapping[str, Any], path: str, query: str) -> Any:
    """Return the answer to a path and its query, by those that were kept; None where nothing tells it."""
    # As it was asked when it was kept; only then by the rules.
    key = f"{path}?{query}" if query else path
    if key in answers:
        return answers[key]
    first, _, name = path.rpartition("/")
    rule = RULES.get(path) or RULES.get(f"{first}/*")
    return None if rule is None else rule(answers, unquote(name), query)


def _detail_of_job(answers: Mapping[str, Any], name: str, _: str) -> Any:
    jobs = answers.get("api/jobs/", [])
    return next((job for job in jobs if name and name in (job.get("job_id"), job.get("submission_id"))), None)


def _detail_of_actor(answers: Mapping[str, Any], name: str, _: str) -> Any:
    actor = answers.get("logical/actors", {}).get("data", {}).get("actors", {}).get(name)
    return None if actor is None else {"result": True, "msg": "", "data": {"detail": actor}}


def _detail_of_node(answers: Mapping[str, Any], name: str, _: str) -> Any:
    node = next((node for node in _nodes(answers) if node["raylet"].get("nodeId") == name), None)
    # The page reads both; what ran there was not kept.
    detail = None if node is None else {**node, "workers": [], "actors": {}}
    return None if detail is None else {"result": True, "msg": "", "data": {"detail": detail}}


def _tasks(answers: Mapping[str, Any], _: str, query: str) -> Any:
    answer = answers.get(TASKS)
    if answer is None:
        return None
    key, value = _first(query, "filter_keys"), _first(query, "filter_values")
    # Filtered here, as the head would: the page shows what it gets.
    tasks = [task for task in answer["data"]["result"]["result"] if not key or str(task.get(key)) == value]
    result = {**answer["data"]["result"], "result": tasks, "num_filtered": len(tasks)}
    return {**answer, "data": {**answer["data"], "result": result}}


def _log_names(answers: Mapping[str, Any], _: str, query: str) -> Any:
    host = _hosts(answers).get(_first(query, "node_id"))
    files = {} if host is None else {"instance": [f"{host}.log"]}
    return {"result": True, "msg": "", "data": {"result": files}}


def _same(path: str) -> Callable[[Mapping[str, Any], str, str], Any]:
    """Return the rule of a path that is asked with another query than it was kept with."""
    return lambda answers, name, query: answers.get(path)


def _constant(answer: Any) -> Callable[[Mapping[str, Any], str, str], Any]:
    return lambda answers, name, query: answer


RULES: Mapping[str, Callable[[Mapping[str, Any], str, str], Any]] = {
    "api/jobs/*": _detail_of_job,
    "logical/actors/*": _detail_of_actor,
    "nodes/*": _detail_of_node,
    "api/v0/tasks": _tasks,
    "api/v0/logs": _log_names,
    "api/v0/placement_groups": _same("api/v0/placement_groups?detail=1&limit=1000"),
    "events": _same("events"),
    "api/data/datasets/*": _constant({"datasets": []}),
    # Else the page would ask for a token, which this proxy has for it.
    "api/authentication_mode": _constant({"authentication_mode": "disabled"}),
}
"""How the details that the page asks for follow from what was kept, by their paths."""


def _nodes(answers: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(answers.get(NODES, {}).get("data", {}).get("summary", []))


def _hosts(answers: Mapping[str, Any]) -> dict[str, str]:
    """Return the instances by the names that Ray gives to its nodes."""
    raylets = [node["raylet"] for node in _nodes(answers)]
    return {raylet.get("nodeId", ""): str((raylet.get("labels") or {}).get(LABEL_HOST, "")) for raylet in raylets}


def _first(query: str, name: str) -> str:
    return parse_qs(query).get(name, [""])[0]
