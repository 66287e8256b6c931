"""Notebooks that run in a real kernel of this Python: ``python -m tests.support.kernels NOTEBOOK``."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300


def run_cells(folder, *cells):
    """Run cells in a kernel whose working folder is ``folder``; return them with their outputs, as JSON has them."""
    import nbformat

    path = folder / "notebook.ipynb"
    nbformat.write(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.support.kernels", str(path)]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * TIMEOUT_S
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return json.loads(path.read_text())["cells"]


def main(path):
    """Run a notebook where it lies, and write it back with its outputs."""
    import nbformat
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    # Not the kernel that is installed, which may be another Python's.
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = path.parent / "kernels" / "here" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": argv, "display_name": "here", "language": "python"}))
    kernels = KernelSpecManager(kernel_dirs=[str(spec.parents[1])])
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_name="here", kernel_spec_manager=kernels),
        timeout=TIMEOUT_S,
        startup_timeout=TIMEOUT_S,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    nbformat.write(notebook, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
