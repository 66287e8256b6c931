"""Where a page of this machine is seen from a notebook: variables and a port flow in, a URL flows out.

A notebook's browser may be on another machine than its kernel. Where a Jupyter server stands between them, it passes
pages of the kernel's machine on below its own address, by jupyter-server-proxy:
https://jupyter-server-proxy.readthedocs.io/en/latest/arbitrary-ports-hosts.html
"""

import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Seen", "running_servers", "seen_from_notebook"]

STUDIO = "/jupyterlab/default/"
"""Below which SageMaker Studio serves JupyterLab."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """How a notebook shows a page."""

    url: str
    """Absolute, or from the root of the notebook's own server."""
    in_frame: bool
    """Whether it can be shown in the notebook itself; else as a link alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A Jupyter server of this machine."""

    pid: int
    base_url: str


def seen_from_notebook(
    port: int,
    prefix: str,
    environ: Mapping[str, str] | None = None,
    *,
    servers: Callable[[], Iterable[Server]] | None = None,
    is_installed: Callable[[str], bool] | None = None,
) -> Seen:
    """Return how the notebook of this kernel shows the page at ``http://127.0.0.1:PORT/PREFIX/``.

    Args:
        port: Where it is served.
        prefix: Its path.
        environ: The environment variables; None are this process's.
        servers: Returns the Jupyter servers of this machine; None asks Jupyter's own records.
        is_installed: Whether a package is here; None looks.
    """
    # What a Jupyter server tells its kernels: not raysm's own to be set, and nowhere else to be read.
    environ = os.environ if environ is None else environ  # noqa: TID251
    direct = f"http://127.0.0.1:{port}/{prefix}/"
    if any(name.startswith("VSCODE_") for name in environ) or "COLAB_RELEASE_TAG" in environ:
        # Their pages have an address of their own, below which nothing of this machine is shown.
        return Seen(url=direct, in_frame=False)
    base = _base_url(environ, (servers or running_servers), is_installed or _is_installed)
    return Seen(url=direct if base is None else f"{base.rstrip('/')}/proxy/{port}/{prefix}/", in_frame=True)


def _base_url(
    environ: Mapping[str, str], servers: Callable[[], Iterable[Server]], is_installed: Callable[[str], bool]
) -> str | None:
    """Return below which path the notebook's server passes pages on; None where none does."""
    if "JUPYTERHUB_SERVICE_PREFIX" in environ:
        return environ["JUPYTERHUB_SERVICE_PREFIX"]
    if environ.get("SAGEMAKER_APP_TYPE", environ.get("SAGEMAKER_INTERNAL_IMAGE_URI", "")).lower() == "jupyterlab":
        return STUDIO
    # A kernel may be of another environment than its server: then the page is shown as it is, by its own address.
    if not is_installed("jupyter_server_proxy"):
        return None
    parent = environ.get("JPY_PARENT_PID", "")
    return next((server.base_url for server in servers() if str(server.pid) == parent), None)


def running_servers(folder: Path | None = None) -> list[Server]:
    """Return the Jupyter servers that have left a record of themselves in ``folder``; None is Jupyter's own."""
    if folder is None:
        if not _is_installed("jupyter_core"):
            return []
        folder = Path(importlib.import_module("jupyter_core.paths").jupyter_runtime_dir())
    servers = []
    for file in sorted(folder.glob("jpserver-*.json")):
        try:
            record = json.loads(file.read_text())
            servers.append(Server(pid=int(record["pid"]), base_url=str(record["base_url"])))
        except (OSError, ValueError, KeyError):  # one that is just being written, or of another version
            continue
    return servers


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
