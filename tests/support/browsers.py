"""Debian's chromium under Playwright: what would leave this machine finds no host there, and is told."""

import contextlib
import importlib.util
import os
import shutil
from dataclasses import dataclass, field
from urllib.parse import urlsplit

REQUIRED = "RAYSM_BROWSER_REQUIRED"
"""Where it is set, a browser that is missing fails the tests instead of skipping them."""

LOOPBACK = ("127.0.0.1", "localhost")

# By the browser itself: Playwright's own way asks this process about each request, and switches the
# browser's cache off, and JupyterLab alone asks for two hundred files.
ALONE = f"--host-resolver-rules=MAP * ~NOTFOUND{''.join(f', EXCLUDE {name}' for name in LOOPBACK)}"

WAIT_MS = 90_000
"""Generous: a page of Ray's is there within two seconds where nothing else runs."""


def chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser")


def why_not():
    """Return why no browser can be driven here, or None if one can, or has to be."""
    if os.environ.get(REQUIRED):
        return None
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: python3 -m pip install 'raysm[browser]'"
    return (
        None
        if chromium()
        else "there is no chromium: apt-get install -y --no-install-recommends chromium"
    )


@dataclass
class Seen:
    """What a page asked for, and what went wrong in it."""

    urls: list = field(default_factory=list)
    outside: list = field(default_factory=list)
    errors: list = field(default_factory=list)


@contextlib.contextmanager
def running():
    """Yield a browser."""
    from playwright.sync_api import sync_playwright

    assert chromium(), "there is no chromium"
    with sync_playwright() as playwright:
        # As root, and in a container: without a sandbox of its own, and with little shared memory.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", ALONE]
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def looking(browser, **options):
    """Yield a context of a browser with what is seen in it; nothing of it may leave this machine, or raise."""
    seen = Seen()
    context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
    context.set_default_timeout(WAIT_MS)

    def see(url):
        seen.urls.append(url)
        if url.startswith(("http:", "https:")) and urlsplit(url).hostname not in LOOPBACK:
            seen.outside.append(url)

    def watch(page):
        page.on("request", lambda request: see(request.url))
        # They begin with ws: and wss:, at the addresses of their pages otherwise.
        page.on("websocket", lambda socket: see(f"http{socket.url.removeprefix('ws')}"))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))

    context.on("page", watch)
    try:
        yield context, seen
        assert seen.outside == []
        assert seen.errors == []
    finally:
        context.close()
