"""The tutorial, from its first line to its last, as a reader follows it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.core.protocol.result import MODEL_FILE, TRAINING, Manifest
from tests.support.pages import assert_printed

PAGE = Path(__file__).parents[1] / "docs" / "tutorial" / "first-job-to-first-training.md"

TIMEOUT_S = 600
"""Of one command."""

STEP = re.compile(
    r"Write `(?P<file>[\w.]+)`:\n\n```python\n(?P<code>[\s\S]*?)```"
    r"|^    (?P<command>(?:raysm|python3) .*)$"
    r"|```text\n(?P<lines>[\s\S]*?)```",
    re.MULTILINE,
)
"""What a reader does or sees: a file to write, a command to run, lines that it prints."""

RAYSM = [sys.executable, "-c", "import sys; from raysm.cli.main import main; sys.exit(main())"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def run(command, folder):
    program, *arguments = shlex.split(command)
    program = RAYSM if program == "raysm" else [sys.executable]
    ended = subprocess.run(
        [*program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def followed(tmp_path_factory, home):
    """The reader's folder at the end, with what each command printed."""
    folder = tmp_path_factory.mktemp("tutorial")
    outputs = {}
    for step in STEP.finditer(PAGE.read_text()):
        if step["file"]:
            (folder / step["file"]).write_text(step["code"])
        elif step["lines"]:
            assert_printed(step["lines"], list(outputs.values())[-1])
        # The server of these tests is ended with them; to install is what .ci/run does.
        elif "pip install" not in step["command"] and step["command"] != "raysm local down":
            outputs[step["command"]] = run(step["command"], folder)
    return folder, outputs


def test_every_line_that_the_tutorial_shows_is_printed(followed):
    assert len(followed[1]) >= 5


def test_the_results_are_where_the_tutorial_says(followed):
    folder, _ = followed
    assert (folder / "out" / "pi.json").exists()
    assert (folder / "out" / "manifest.json").exists()
    trained = Manifest.read(folder / "trained")
    assert [file.name for file in trained.files] == [MODEL_FILE, TRAINING]
    assert trained.instances == ("algo-1", "algo-2")
    assert trained.measures["steps_per_s"] > 0
    assert "% of the" in trained.summary
    assert not (folder / "checkpoints").exists()


def test_two_instances_end_with_the_loss_of_one_process(followed):
    _, outputs = followed
    losses = [
        float(loss)
        for text in outputs.values()
        for loss in re.findall(r"final_loss:? ([0-9.]+)", text)
    ]
    assert len(losses) == 2
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
