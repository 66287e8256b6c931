"""The output of a cell: text, rich output of a notebook, and the value of its last line."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from raysm.features.session.protocol import DISPLAY, Outcome


class Shown:
    """The displayed value of a cell's last line: text by ``repr``, rich output in a notebook.

    Attributes:
        data: The representations by MIME type; pictures in base64.
        metadata: IPython's metadata by MIME type.
    """

    def __init__(self, data: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        self.data = dict(data)
        self.metadata = dict(metadata)

    def __repr__(self) -> str:
        return str(self.data.get("text/plain", ""))

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.data, self.metadata


@dataclass(frozen=True, slots=True)
class CellResult:
    """The output of a cell. A notebook displays it as its ``result``."""

    outputs: list[dict[str, Any]]
    """All output in order, in nbformat's types ``stream``, ``display_data`` and
    ``execute_result``."""
    result: Shown | None
    """The displayed value of the last line; None if it has none."""

    @property
    def text(self) -> str:
        """All output as plain text."""
        return "".join(
            each["text"]
            if each["output_type"] == "stream"
            else f"{each['data'].get('text/plain', '')}\n"
            for each in self.outputs
        )

    def __repr__(self) -> str:
        return "" if self.result is None else repr(self.result)

    def _ipython_display_(self) -> None:
        if self.result is not None:
            show_display({"data": self.result.data, "metadata": self.result.metadata}, sys.stdout)


def collect_result(pieces: Iterable[tuple[str, str]], outcome: Outcome) -> CellResult:
    outputs: list[dict[str, Any]] = []
    is_to_clear = False
    for stream, text in pieces:
        bundle = json.loads(text) if stream == DISPLAY else {}
        if bundle.get("clear"):  # when the next output comes
            is_to_clear = True
            continue
        if is_to_clear or "clear" in bundle:
            outputs = []
            is_to_clear = False
        if "clear" in bundle:
            continue
        if bundle.get("update"):
            id = bundle.get("transient", {}).get("display_id")
            for each in outputs:
                if each.get("transient", {}).get("display_id") == id:
                    each.update(data=bundle["data"], metadata=bundle["metadata"])
        elif bundle:
            shown = {name: bundle[name] for name in ("data", "metadata", "transient")}
            outputs.append({"output_type": "display_data", **shown})
        elif outputs and outputs[-1].get("name") == stream:
            outputs[-1]["text"] += text
        else:
            outputs.append({"output_type": "stream", "name": stream, "text": text})
    for each in outputs:
        each.pop("transient", None)
    if not outcome.shown:
        return CellResult(outputs, None)
    shown = {"data": dict(outcome.shown), "metadata": dict(outcome.metadata)}
    outputs.append({"output_type": "execute_result", "execution_count": None, **shown})
    return CellResult(outputs, Shown(outcome.shown, outcome.metadata))


def show_display(bundle: Mapping[str, Any], out: TextIO) -> None:
    """Show rich output in the notebook, or write its text to ``out`` outside of a notebook."""
    # A notebook has imported IPython already; anywhere else the import is not needed.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None and "clear" in bundle:
        shell.display_pub.clear_output(wait=bundle["clear"])
    elif shell is not None:
        how = {"transient": bundle.get("transient") or {}, "update": bundle.get("update", False)}
        shell.display_pub.publish(bundle["data"], bundle["metadata"], **how)
    elif "clear" not in bundle and not bundle.get("update"):
        out.write(f"{bundle['data'].get('text/plain', '')}\n")
        out.flush()
