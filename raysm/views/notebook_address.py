"""The address at which a notebook shows a page that this process serves.

The browser may run on another machine than the kernel. A Jupyter server between them serves pages of the kernel's
machine below its own address, by jupyter-server-proxy:
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
"""The path of JupyterLab in SageMaker Studio."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A page as a notebook shows it."""

    url: str
    """Absolute, or from the root of the notebook's own server."""
    in_frame: bool
    """Whether the notebook can show it in a frame, and not only as a link."""


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
    """Return how this kernel's notebook shows the page at ``http://127.0.0.1:PORT/PREFIX/``.

    Args:
        port: The page's port.
        prefix: The page's path.
        environ: Environment variables; None is this process's.
        servers: Returns the Jupyter servers of this machine; None reads Jupyter's records.
        is_installed: Tells whether a package is installed; None looks for it.
    """
    # Variables that a Jupyter server sets for its kernels.
    environ = os.environ if environ is None else environ  # noqa: TID251
    direct = f"http://127.0.0.1:{port}/{prefix}/"
    if any(name.startswith("VSCODE_") for name in environ) or "COLAB_RELEASE_TAG" in environ:
        # Their own sites do not serve pages of this machine.
        return Seen(url=direct, in_frame=False)
    base = _base_url(environ, (servers or running_servers), is_installed or _is_installed)
    return Seen(url=direct if base is None else f"{base.rstrip('/')}/proxy/{port}/{prefix}/", in_frame=True)


def _base_url(
    environ: Mapping[str, str], servers: Callable[[], Iterable[Server]], is_installed: Callable[[str], bool]
) -> str | None:
    """Return the path below which the notebook's server serves pages of this machine; None if it does not."""
    if "JUPYTERHUB_SERVICE_PREFIX" in environ:
        return environ["JUPYTERHUB_SERVICE_PREFIX"]
    if environ.get("SAGEMAKER_APP_TYPE", environ.get("SAGEMAKER_INTERNAL_IMAGE_URI", "")).lower() == "jupyterlab":
        return STUDIO
    # The server may run in another environment than the kernel; then the page's own address is the best guess.
    if not is_installed("jupyter_server_proxy"):
        return None
    parent = environ.get("JPY_PARENT_PID", "")
    return next((server.base_url for server in servers() if str(server.pid) == parent), None)


def running_servers(folder: Path | None = None) -> list[Server]:
    """Return the Jupyter servers that have a record in ``folder``; None is Jupyter's runtime folder."""
    if folder is None:
        if not _is_installed("jupyter_core"):
            return []
        folder = Path(importlib.import_module("jupyter_core.paths").jupyter_runtime_dir())
    servers = []
    for file in sorted(folder.glob("jpserver-*.json")):
        try:
            record = json.loads(file.read_text())
            servers.append(Server(pid=int(record["pid"]), base_url=str(record["base_url"])))
        except (OSError, ValueError, KeyError):  # a record that is being written, or of another version
            continue
    return servers


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
