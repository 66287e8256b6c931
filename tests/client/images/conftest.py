"""A docker command that remembers what it was told: a shell script, found as the real one is."""

import json
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from raysm.client.images.docker import Docker

SCRIPT = """\
#!{python}
import json, os, sys
from pathlib import Path
here = Path(__file__).parent
arguments = sys.argv[1:]
answer = json.loads((here / "answers.json").read_text()).get(arguments[0], {{}})
files = sorted(os.listdir(arguments[-1])) if os.path.isdir(arguments[-1]) else []
with (here / "calls.jsonl").open("a") as calls:
    print(json.dumps({{"arguments": arguments, "stdin": sys.stdin.read(), "files": files}}), file=calls)
print(answer.get("stdout", ""))
print(answer.get("stderr", ""), file=sys.stderr)
sys.exit(answer.get("code", 0))
"""


@dataclass
class RecordedDocker:
    """What the command is to answer, and what it was told."""

    folder: Path

    @property
    def docker(self):
        return Docker(str(self.folder / "docker"))

    def answer(self, **answers):
        """Let commands answer ``{"code": …, "stdout": …, "stderr": …}``, by their first word."""
        (self.folder / "answers.json").write_text(json.dumps(answers))

    @property
    def calls(self):
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def told(self, word):
        """Return the arguments of the calls that began with ``word``."""
        return [call["arguments"] for call in self.calls if call["arguments"][0] == word]


@pytest.fixture
def recorded(tmp_path):
    import sys

    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "docker"
    program.write_text(SCRIPT.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    made = RecordedDocker(folder)
    made.answer(run={"stdout": "3.12"}, buildx={"code": 1})
    return made
