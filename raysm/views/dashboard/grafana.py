"""What Ray's page asks of Grafana and Prometheus, answered here: so its Metrics tab and its Overview have charts.

The page asks two addresses whether both are there, and then shows pages of the Grafana that it was told of in frames:
one board in the Metrics tab, single panels elsewhere. It takes a relative address, so the frames stay below the secret
path. All of this is Ray's own and may change with its version: ``RELIED_ON`` says what is read, and a test looks for it
in the page that is installed.
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from raysm.views.dashboard.chart_page import chart_page, charts_of
from raysm.views.dashboard.panels import PANELS, board
from raysm.views.dashboard.parts import PageRequest
from raysm.views.dashboard.timeline import Timeline

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["ASKED_FIRST", "RELIED_ON", "ChartsPart", "begin_of", "health_of"]

HOST = "raysm/charts"
"""What the page takes for the address of Grafana; relative to itself."""

BOARD = "rayDefaultDashboard"

HEALTH = ("api/grafana_health", "api/prometheus_health")
"""What the page asks once, as it is loaded; until it has both answers it says that Grafana is to be set up."""

# anonymous: as the page's own requests are made, else a browser would not take this answer for theirs.
ASKED_FIRST = ", ".join(f"<{path}>; rel=preload; as=fetch; crossorigin=anonymous" for path in HEALTH)
"""The page's header Link, by which a browser asks them before all else.

A browser has six connections to one address. Ray's page asks the head on most of them first, and one that is busy keeps
them for minutes: what is answered here at once would wait for it.
"""

RELIED_ON = (
    *HEALTH,
    "grafanaHost",
    "grafanaOrgId",
    "sessionName",
    "dashboardUids",
    "dashboardDatasource",
    "/default-dashboard?orgId=",
    "panelId=41",
    "panelId=24",
    "/d-solo/",
    "/d/",
    "nodes?view=summary",
    "networkSpeed",
)
"""Texts of the program of Ray's page, as a compiler leaves them, without which the charts would not be shown."""

RANGE = re.compile(r"now-(\d+)([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def health_of(name: str) -> dict[str, dict[str, Any]]:
    """Return the answers that say that Grafana and Prometheus are there, by their paths.

    Args:
        name: Of the job.
    """
    grafana = {
        "grafanaHost": HOST,
        "grafanaOrgId": "1",
        "sessionName": name,
        "dashboardUids": {"default": BOARD},
        "dashboardDatasource": "raysm",
    }
    answers = zip(HEALTH, (grafana, {}), strict=True)
    return {path: {"result": True, "msg": "charts of raysm", "data": data} for path, data in answers}


def begin_of(text: str, now_s: float) -> float:
    """Return the begin of a range as Grafana writes it, in seconds since the epoch.

    Args:
        text: ``now-5m``, or milliseconds since the epoch; anything else is the begin of all.
        now_s: The time.
    """
    # fullmatch: Grafana's ranges have many more forms (now/d), of which Ray's page uses this one alone.
    relative = RANGE.fullmatch(text)
    if relative:
        return now_s - int(relative[1]) * SECONDS[relative[2]]
    # Of 16 digits and more are no milliseconds of any time that there was: an int of a megabyte would take seconds.
    return int(text) / 1000 if text.isdecimal() and len(text) < 16 else 0.0


class ChartsPart:
    """Answers for Grafana, with what a timeline holds."""

    def __init__(self, name: str, timeline: Timeline, clock: Callable[[], float] = time.time) -> None:
        """Show ``timeline``, which others add to in the same event loop.

        Args:
            name: Of the job.
            timeline: The values.
            clock: Returns seconds since the epoch; of a job that has ended, its end.
        """
        self._health = health_of(name)
        self._name, self._timeline, self._clock = name, timeline, clock

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Say that Grafana is there, or be it."""
        from aiohttp import web

        if page_request.path in self._health:
            return web.json_response(self._health[page_request.path])
        if not page_request.path.startswith(f"{HOST}/d") or not page_request.only_reads:
            return None
        query = {name: values[-1] for name, values in parse_qs(page_request.query).items()}
        begin_s = begin_of(query.get("from", ""), self._clock())
        if page_request.path.startswith(f"{HOST}/d-solo/{BOARD}"):
            panel = PANELS.get(query.get("panelId", ""))
            charts = [] if panel is None else [panel(self._timeline, begin_s)]
        else:
            charts = board(self._timeline, begin_s) if page_request.path.startswith(f"{HOST}/d/{BOARD}") else []
        is_solo = "/d-solo/" in page_request.path
        # What the page asks for again and again is the inner part alone.
        if "part" in query:
            return web.Response(text=charts_of(charts, is_solo=is_solo), content_type="text/html")
        page = chart_page(charts, title=self._name, theme=query.get("theme", "light"), is_solo=is_solo)
        return web.Response(text=page, content_type="text/html")
