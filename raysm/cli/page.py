"""A page at an address of this machine that a command shows until Ctrl-C."""

import json
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.interrupts import interruptible
from raysm.core.client.service import Service
from raysm.core.protocol.home import private_folder
from raysm.core.protocol.store import put

PAGE = """<!doctype html><meta charset="utf-8"><title>raysm</title>
<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">the page</a>
"""

Browse = Callable[[str], object]


def show_page(
    arguments: Arguments,
    console: Console,
    service: Service,
    url: str,
    browse: Browse,
    wait: Callable[[], object],
) -> None:
    if arguments.json:
        print(json.dumps({"url": url}), flush=True)
    else:
        console.print(Text(url), soft_wrap=True)
        text = (
            "Ctrl-C ends this command. Keep this address secret: "
            "it gives access without a password."
        )
        console.print(text, style="dim", soft_wrap=True)
    page = (
        private_folder(service.home, "dashboard")
        / f"open-{url.split('/')[2].rpartition(':')[2]}.html"
    )
    try:
        with interruptible():
            if not arguments.no_open:
                # A file for its owner only, because all users of the machine can see a browser's
                # arguments.
                put(page, PAGE.format(url=url), mode=0o600)
                browse(page.as_uri())
            wait()
    except KeyboardInterrupt:
        pass
    finally:
        page.unlink(missing_ok=True)
