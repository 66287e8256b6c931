"""The command ``raysm dashboard``: shows the dashboard of a job until Ctrl-C."""

import json
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import read_settings
from raysm.cli.jobs import find_to_read
from raysm.client.service import Service, connect
from raysm.contract.store import put
from raysm.views.dashboard.dashboard import open_dashboard

__all__ = ["run"]

PAGE = """<!doctype html><meta charset="utf-8"><title>raysm</title>
<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">the dashboard</a>
"""

Browse = Callable[[str], object]


def run(
    arguments: Arguments,
    console: Console,
    service: Service | None = None,
    *,
    browse: Browse = webbrowser.open,
    wait: Callable[[], object] | None = None,
) -> None:
    """Show the dashboard of ``arguments.job`` until Ctrl-C, which ends the showing, not the job.

    Args:
        arguments: The parsed command line.
        console: Where to print.
        service: Where the job is; None is what the arguments name.
        browse: Opens a browser at a URL.
        wait: Returns when the dashboard is to end; None waits for Ctrl-C.
    """
    # Reading a job needs no role of its own: the caller's credentials do it.
    target = read_settings(arguments).target(role="arn:aws:iam::000000000000:role/unused")
    service = service or connect(target)
    with open_dashboard(find_to_read(arguments.job, service)) as dashboard:
        if arguments.json:
            print(json.dumps({"url": dashboard.url}), flush=True)
        else:
            console.print(Text(dashboard.url), soft_wrap=True)
            console.print("Ctrl-C ends it; keep this address secret, it gives access to the cluster", style="dim")
        page = service.home / "dashboard" / f"open-{dashboard.port}.html"
        try:
            if not arguments.no_open:
                _open(dashboard.url, page, browse)
            (wait or threading.Event().wait)()
        except KeyboardInterrupt:
            pass
        finally:
            page.unlink(missing_ok=True)


def _open(url: str, page: Path, browse: Browse) -> None:
    # By way of a file that its owner alone can read: what a browser is started with, every user of the machine can see.
    put(page, PAGE.format(url=url), mode=0o600)
    browse(page.as_uri())
