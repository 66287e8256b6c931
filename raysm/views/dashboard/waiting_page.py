"""What a browser sees while the head's dashboard is being started: a page at once, and Ray's own once it is there.

What flows in are requests for the page itself; what flows out is a page that waits, or nothing once the head answers.
Ray's dashboard takes 5 s of a core to come up, and without this a browser showed a blank page for all of them.
"""

import asyncio
import html
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from raysm.views.dashboard.parts import PAGE, PageRequest

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["WaitingPage"]

READY = "raysm/ready"
"""The path that the waiting page asks: it is answered once the head is reached, or cannot be."""

PATIENCE_S = 0.3
"""A head whose dashboard is up answers sooner, and nobody sees a page that goes away at once."""
HOLD_S = 20.0
"""For which an answer is held back: less than the patience of any proxy between."""

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; min-height: 100vh; display: grid; place-content: center; text-align: center;
       font: 15px system-ui, sans-serif; }
p { margin: 4px 16px; } .more { opacity: 0.65; font-size: 13px; }
i { display: inline-block; width: 18px; height: 18px; margin-bottom: 12px; border-radius: 50%;
    border: 3px solid #8886; border-top-color: #1976d2; animation: turn 1s linear infinite; }
@keyframes turn { to { transform: rotate(360deg); } }
@media (prefers-reduced-motion: reduce) { i { animation-duration: 6s; } }
"""

# Not a refresh by a header or a tag: of an address with a # browsers take that for a jump within the page.
SCRIPT = """
(async () => {
  for (;;) {
    try {
      const answer = await fetch("%s", {cache: "no-store"});
      if (answer.status !== 503) return location.reload();
    } catch (error) {}
    await new Promise(done => setTimeout(done, 300));
  }
})();
"""


class WaitingPage:
    """Answers for the page of a dashboard that is not there yet."""

    def __init__(self, name: str, reach: Callable[[], Awaitable[object]], patience_s: float = PATIENCE_S) -> None:
        """Wait for nothing yet.

        Args:
            name: Of the job.
            reach: Returns once the head's dashboard answers; raises where it cannot be reached.
            patience_s: Seconds for which the browser waits without a page.
        """
        self._name, self._reach, self._patience_s = name, reach, patience_s
        # One attempt for all who ask.
        self._reaching: asyncio.Future[object] | None = None

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Answer for the page while it waits; None once there is nothing to wait for."""
        from aiohttp import web

        if not page_request.only_reads or page_request.path not in (PAGE, READY):
            return None
        is_settled = await self._settles(HOLD_S if page_request.path == READY else self._patience_s)
        if page_request.path == READY:
            return web.Response(status=204 if is_settled else 503)
        if is_settled:
            # Also where the head cannot be reached, once: whoever is asked next says why. The next page tries anew.
            self._forget_failure()
            return None
        return web.Response(text=_page(self._name), content_type="text/html", headers={"Cache-Control": "no-store"})

    async def _settles(self, within_s: float) -> bool:
        if self._reaching is None:
            self._reaching = asyncio.ensure_future(self._reach())
        # Waited for, and not cancelled: another one may wait for it, too.
        await asyncio.wait([self._reaching], timeout=within_s)
        return self._reaching.done()

    def _forget_failure(self) -> None:
        reaching = self._reaching
        # exception() also tells asyncio that somebody has seen it: else it would write a traceback.
        if reaching is not None and (reaching.cancelled() or reaching.exception() is not None):
            self._reaching = None

    async def end(self) -> None:
        """Wait no more."""
        if self._reaching is not None:
            self._reaching.cancel()
            await asyncio.gather(self._reaching, return_exceptions=True)


def _page(name: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(name)}: Ray dashboard</title><style>{STYLE}</style></head><body>"
        f"<div><i></i></div><p>The dashboard of <b>{html.escape(name)}</b> is being started.</p>"
        '<p class="more">Ray starts it at the first request, which takes a few seconds. This page then shows it.</p>'
        f"<script>{SCRIPT % READY}</script></body></html>"
    )
