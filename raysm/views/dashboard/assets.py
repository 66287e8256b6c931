"""The files of Ray's page: from the Ray of this machine where it is the head's, else kept here once they were brought.

The page's program is more than a megabyte: through a tunnel it would take seconds, each time. Its files are named by
their content, so that what was kept never grows old.
"""

import importlib.metadata
import importlib.util
import json
import mimetypes
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from raysm.contract.store import put
from raysm.errors import RaysmError
from raysm.views.dashboard.parts import PageRequest
from raysm.views.dashboard.upstream import Upstream, unreachable

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Assets", "installed_build", "safe_name"]

FOLDERS = ("static", "speedscope-1.5.3")
"""Below the root of Ray's page."""

LASTING = {"Cache-Control": "private, max-age=31536000"}


def installed_build(version: str | None = None) -> Path | None:
    """Return the folder of the page of the Ray that is installed here.

    Args:
        version: The one that is wanted; None is any.

    Returns:
        None where Ray is not here, or is another version.
    """
    # Found without an import, which takes seconds.
    spec = importlib.util.find_spec("ray")
    if spec is None or spec.origin is None:
        return None
    if version is not None and importlib.metadata.version("ray") != version:
        return None
    folder = Path(spec.origin).parent / "dashboard" / "client" / "build"
    return folder if (folder / "index.html").is_file() else None


def safe_name(path: str) -> PurePosixPath | None:
    """Return the path of a file of the page; None of what is no such path, or leads out of it."""
    name = PurePosixPath(path)
    is_plain = all(part not in ("..", ".") and not part.startswith(".") for part in name.parts)
    return (
        name
        if is_plain and "\\" not in path and "%" not in path and name.parts[:1] in [(f,) for f in FOLDERS]
        else None
    )


class Assets:
    """Answers for the files of the page of one cluster."""

    def __init__(self, upstream: Upstream, cache: Path) -> None:
        """Know nothing of the head yet.

        Args:
            upstream: The head.
            cache: Where files of other versions are kept.
        """
        self._upstream, self._cache = upstream, cache
        self._folder: Path | None = None

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Answer with a file of this machine, brought first where it is not here yet."""
        from aiohttp import web

        name = safe_name(page_request.path)
        if name is None or not page_request.only_reads:
            return None
        try:
            folder = await self._place()
            path = folder / name
            is_brought = not path.is_file() and folder.is_relative_to(self._cache)
            content = await self._upstream.read(str(name)) if is_brought else None
        except (OSError, RaysmError) as error:
            return unreachable(error)
        if content is not None:
            put(path, content)
        elif not path.is_file():
            raise web.HTTPNotFound
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return web.FileResponse(path, headers={**LASTING, "Content-Type": kind})

    async def _place(self) -> Path:
        if self._folder is None:
            version = json.loads(await self._upstream.read("api/version"))
            # The commit too: builds of one version may differ.
            named = f"{version['ray_version']}-{version['ray_commit'][:12]}".replace("/", "_")
            self._folder = installed_build(version["ray_version"]) or self._cache / named
        return self._folder
