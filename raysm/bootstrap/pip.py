"""pip as a child process: asked what it would install, and told to install exactly that.

What flows in are pip's own arguments, what flows out are requirements that each name the very file, and a folder of
packages; or pip's last words.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raysm.errors import InvalidRequest

__all__ = ["Pip", "PipFailed"]

COMMAND = (sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check")
# pip's own 15 s and 5 retries cost a minute and a half for each package whose server is silent.
PATIENCE = ("--timeout", "10", "--retries", "3")
TAIL = 600


class PipFailed(InvalidRequest):
    """pip is not there, is too old, or could not do it; the message has its last words."""


class Pip:
    """The image's pip."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Keep its files in ``folder``, and run it with ``environment``."""
        self._folder, self._environment = folder, environment
        # Else an image that has pip's cache switched off, as many have, brings every file twice: pip fetches it to find
        # out what it is, too. And the cache of a home folder lies on the small disk.
        self._cache = () if "PIP_CACHE_DIR" in environment else ("--cache-dir", str(folder / "cache"))

    def resolve(self, arguments: Sequence[str]) -> list[str]:
        """Return what pip would install, each as a requirement that names the very file; nothing is installed.

        Raises:
            PipFailed: It cannot.
        """
        report = self._folder / "report.json"
        self._install("--dry-run", "--report", str(report), *arguments)
        return [_pinned(item) for item in json.loads(report.read_text(encoding="utf-8"))["install"]]

    def install(self, exact: Sequence[str], site: Path, arguments: Sequence[str]) -> None:
        """Install what ``resolve`` returned, and nothing else, into the folder ``site``.

        Raises:
            PipFailed: It cannot.
        """
        listed = self._folder / "exact.txt"
        listed.write_text("".join(f"{line}\n" for line in exact), encoding="utf-8")
        self._install("--no-deps", "--target", str(site), "-r", str(listed), *arguments)

    def settings(self) -> dict[str, str]:
        """Return what files and variables of the image tell pip: ``{"index-url": "https://…"}``; later ones count."""
        done = self._run("config", "list")
        pairs = (line.partition("=") for line in done.stdout.splitlines())
        # "global.index-url='…'"; of one name the variables (":env:.index-url") come first, but count most.
        settings = [(name.split("."), value.strip("'\"")) for name, _, value in pairs if "." in name]
        ordered = sorted(settings, key=lambda item: (item[0][0] == ":env:", item[0][0] == "install"))
        return {name[-1]: value for name, value in ordered}

    def _install(self, *arguments: str) -> None:
        done = self._run("install", "--progress-bar", "off", "--quiet", *self._cache, *PATIENCE, *arguments)
        if done.returncode != 0:
            # Not into the log: a failed attempt without an index is followed by one with it.
            raise PipFailed(_last_words(done.stderr))
        if done.stderr.strip():
            sys.stderr.write(done.stderr)
            sys.stderr.flush()

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*COMMAND, *arguments],
            env=dict(self._environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )


def _pinned(item: Mapping[str, Any]) -> str:
    source, name = item["download_info"], item["metadata"]["name"]
    url = source["url"]
    if "vcs_info" in source:
        # The report has the plain address: a requirement says by which program, and here the commit that was found.
        url = f"{source['vcs_info']['vcs']}+{url}@{source['vcs_info']['commit_id']}"
    if "subdirectory" in source:
        url += f"#subdirectory={source['subdirectory']}"
    return f"{name} @ {url}"


def _last_words(output: str) -> str:
    if "No module named pip" in output:
        return f"this image's {sys.executable} has no pip; add it, or the packages, to the image"
    if "no such option: --report" in output:
        return "this image's pip is older than 22.2; add a newer one, or the packages, to the image"
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    return (" ".join(errors) or " ".join(output.split())[-TAIL:])[:TAIL]
