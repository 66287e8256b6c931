"""Debian's chromium under Playwright: every request that would leave this machine is stopped, and told."""

import contextlib
import importlib.util
import os
import shutil
from dataclasses import dataclass, field
from urllib.parse import urlsplit

REQUIRED = "RAYSM_BROWSER_REQUIRED"
"""Where it is set, a browser that is missing fails the tests instead of skipping them."""

LOOPBACK = ("127.0.0.1", "localhost")

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
    return None if chromium() else "there is no chromium: apt-get install -y --no-install-recommends chromium"


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
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
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

    def decide(route):
        if urlsplit(route.request.url).hostname in LOOPBACK:
            route.continue_()
        else:
            seen.outside.append(route.request.url)
            route.abort()

    def watch(page):
        page.on("request", lambda request: seen.urls.append(request.url))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))

    context.route(lambda url: url.startswith(("http:", "https:", "ws:", "wss:")), decide)
    context.on("page", watch)
    try:
        yield context, seen
        assert seen.outside == []
        assert seen.errors == []
    finally:
        context.close()
