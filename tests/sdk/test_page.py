"""The page about the SDK, boto3 and the AWS CLI, run from its top to its bottom as it stands."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.namespace, pytest.mark.long]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-the-sagemaker-sdk.md"
FOR_THE_CLI = re.compile(r"^aws .*\n", re.MULTILINE)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the page's commands print, in a folder with the page's files."""
    folder = tmp_path_factory.mktemp("page")
    script = ["set -euo pipefail\n"]
    for language, code in re.findall(r"```(bash|python)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        if language == "bash":
            script.append(code if shutil.which("aws") else FOR_THE_CLI.sub("", code))
            continue
        path = folder / code.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
    # The page's python3 and raysm are those that run this test.
    commands = folder / "bin"
    commands.mkdir()
    for name, arguments in (("python3", ""), ("raysm", "-m raysm")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (commands / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"PATH": f"{commands}:{os.environ['PATH']}", "RAYSM_HOME": str(folder / "home")}
    try:
        done = subprocess.run(
            ["bash", "-c", "".join(script)], cwd=folder, env=environment, capture_output=True, text=True, timeout=500
        )
    finally:
        down = [sys.executable, "-m", "raysm", "local", "down", "--force"]
        subprocess.run(down, env=environment, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


SHOWN = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("index", [1, 2, 3], ids=["Ray", "torchrun", "boto3"])
def test_the_page_prints_what_it_shows(printed, index):
    assert SHOWN[index] in printed


@pytest.mark.skipif(shutil.which("aws") is None, reason="the AWS CLI is not installed")
def test_the_aws_cli_finds_the_job_and_its_result(printed):
    assert SHOWN[4] in printed
