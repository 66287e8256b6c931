"""The command ``raysm ui``: compare all jobs in the browser, with MLflow's pages."""

import threading
import time
import webbrowser
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import service_to_read
from raysm.cli.interrupts import interruptible
from raysm.cli.page import Browse, show_page
from raysm.core.client.service import Service
from raysm.errors import RaysmError
from raysm.features.experiments.mlflow_view import MlflowStore, check_mlflow, open_mlflow, records

UPDATE_S = 15.0


def run(
    arguments: Arguments,
    console: Console,
    service: Service | None = None,
    *,
    browse: Browse = webbrowser.open,
    wait: Callable[[], object] | None = None,
) -> None:
    """Copy all jobs into a local MLflow store, and serve MLflow's pages until Ctrl-C."""
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
            show_page(arguments, console, service, url, browse, wait or threading.Event().wait)
        finally:
            ended.set()
            thread.join()
