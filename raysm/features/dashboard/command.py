"""The commands that stay open: ``raysm dashboard``, ``ui``, ``tunnel`` and ``shell``."""

import json
import threading
import time
import webbrowser
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import service_to_read
from raysm.cli.interrupts import interruptible
from raysm.cli.jobs import find_to_read
from raysm.core.client.job.listing import find_job
from raysm.core.client.service import Service
from raysm.core.protocol.home import private_folder
from raysm.core.protocol.store import put
from raysm.errors import RaysmError
from raysm.features.dashboard.dashboard import open_dashboard
from raysm.features.dashboard.tunnel.opening import run_command

PAGE = """<!doctype html><meta charset="utf-8"><title>raysm</title>
<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">the page</a>
"""

UPDATE_S = 15.0

Browse = Callable[[str], object]


def run(
    arguments: Arguments,
    console: Console,
    service: Service | None = None,
    *,
    browse: Browse = webbrowser.open,
    wait: Callable[[], object] | None = None,
) -> None:
    """Show the dashboard of ``arguments.job`` until Ctrl-C; the job keeps running."""
    service = service or service_to_read(arguments)
    with open_dashboard(find_to_read(arguments.job, service)) as dashboard:
        _show(arguments, console, service, dashboard.url, browse, wait or threading.Event().wait)


def run_ui(
    arguments: Arguments,
    console: Console,
    service: Service | None = None,
    *,
    browse: Browse = webbrowser.open,
    wait: Callable[[], object] | None = None,
) -> None:
    """Copy all jobs into a local MLflow store, and serve MLflow's pages until Ctrl-C; arguments as in ``run``."""
    # Imported here, because tunnel and shell need no grids and no tables.
    from raysm.features.experiments.mlflow_view import MlflowStore, check_mlflow, open_mlflow, records

    check_mlflow()
    service = service or service_to_read(arguments)
    store = MlflowStore(service.home / "mlflow")
    errors = Console(stderr=True)

    def update() -> None:
        # The next update reads what a failed one missed.
        while not ended.wait(UPDATE_S):
            try:
                store.update(records(service, arguments.limit))
            except (RaysmError, OSError) as error:
                errors.print(Text(f"raysm: the jobs cannot be read now: {error}"), soft_wrap=True)

    began_s = time.monotonic()
    found = records(service, arguments.limit)
    count = store.update(found)
    said = f"{len(found):,} runs, {count:,} of them new or changed, in {time.monotonic() - began_s:.1f} s"
    errors.print(f"{said}; starting MLflow", highlight=False)
    ended = threading.Event()
    with interruptible() as interrupts, open_mlflow(store) as url:
        interrupts.raise_if_lost()
        thread = threading.Thread(target=update, daemon=True, name="raysm ui")
        thread.start()
        try:
            _show(arguments, console, service, url, browse, wait or threading.Event().wait)
        finally:
            ended.set()
            thread.join()


def _show(
    arguments: Arguments, console: Console, service: Service, url: str, browse: Browse, wait: Callable[[], object]
) -> None:
    if arguments.json:
        print(json.dumps({"url": url}), flush=True)
    else:
        console.print(Text(url), soft_wrap=True)
        text = "Ctrl-C ends this command. Keep this address secret: it gives access without a password."
        console.print(text, style="dim", soft_wrap=True)
    page = private_folder(service.home, "dashboard") / f"open-{url.split('/')[2].rpartition(':')[2]}.html"
    try:
        with interruptible():
            if not arguments.no_open:
                # A file for its owner only, because all users of the machine can see a browser's arguments.
                put(page, PAGE.format(url=url), mode=0o600)
                browse(page.as_uri())
            wait()
    except KeyboardInterrupt:
        pass
    finally:
        page.unlink(missing_ok=True)


LOOK_S = 5.0
"""Seconds between two checks that the job still runs; the tunnel ends with the job."""


def run_entering(arguments: Arguments, console: Console, service: Service | None = None) -> int:
    service = service or service_to_read(arguments)
    job = find_job(arguments.job, service)
    if arguments.command == "shell":
        return run_command(job.chain, arguments.script_args, on=arguments.instance)
    remote = {"on": arguments.instance, "local_port": arguments.local}
    with interruptible(), job.tunnel(arguments.port, **remote) as tunnel:
        if arguments.json:
            # Flushed, because another program may wait for this line while the command keeps running.
            print(json.dumps({"job": job.name, "address": tunnel.address, "port": tunnel.port}), flush=True)
        else:
            where = arguments.instance or "the head"
            console.print(
                f"{tunnel.address} leads to port {arguments.port} of {where}; Ctrl-C ends it", highlight=False
            )
        pause = threading.Event()
        while not job.done():
            pause.wait(LOOK_S)
    return 0
