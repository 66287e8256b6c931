"""What people look at of a job, by methods of the job itself.

Views are above the client, which does not import them: each is named here, and imported when it is called.
"""

import pkgutil
from typing import Any

__all__ = ["JobViews"]


class JobViews:
    """The views of a job, mixed into it."""

    def dashboard(self, *, timeout: float | None = None) -> Any:
        """Return Ray's dashboard of the job at an address of this machine; a notebook shows it in a frame.

        ``.url`` is its address, ``.close()`` ends it, and so does the end of a ``with`` block or of this process. A job
        that has none yet is waited for.

        Args:
            timeout: Seconds to wait for a job that has none yet; None is without end.

        Raises:
            InvalidRequest: The job has ended.
            NotDone: A TimeoutError: there is none within ``timeout``.
            MissingDependency: aiohttp is not installed: the extra ``interactive``.
        """
        return pkgutil.resolve_name("raysm.views.dashboard.dashboard:open_dashboard")(self, timeout=timeout)

    def plot(self, *names: str, log: bool = False, size: tuple[int, int] = (640, 260)) -> Any:
        """Return a chart of metrics, which a notebook shows; ``.save("loss.png")`` writes it.

        Args:
            names: ``"loss"``, or patterns, ``"val/*"``; none is all of the job's own.
            log: Whether the y axis is logarithmic.
            size: Width and height in pixels.

        Raises:
            InvalidRequest: There are metrics, but none of such a name.
        """
        return pkgutil.resolve_name("raysm.views.plots:plot_jobs")([self], *names, log=log, size=size)

    def watch(self) -> Any:
        """Show a live card of the job below the cell of a notebook, until it has ended; later cells run meanwhile.

        Returns:
            A handle: ``.stop()`` draws it no more, ``.wait()`` waits for the job's last card.

        Raises:
            InvalidRequest: This is no notebook.
        """
        return pkgutil.resolve_name("raysm.views.card.watching:watch")(self)
