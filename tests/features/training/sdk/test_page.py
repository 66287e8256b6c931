"""The page about the SDK, boto3 and the AWS CLI, run from its top to its bottom as it stands."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import assert_printed, outputs, run_page

pytestmark = pytest.mark.namespace

PAGE = Path(__file__).parents[4] / "docs" / "guides" / "local-sagemaker-sdk.md"
FOR_THE_CLI = re.compile(r"^aws .*\n", re.MULTILINE)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the page's commands print, in a folder with the page's files."""
    folder = tmp_path_factory.mktemp("page")
    but = re.compile("$^") if shutil.which("aws") else FOR_THE_CLI
    try:
        yield run_page(PAGE, folder, folder / "home", but)
    finally:
        down = [sys.executable, "-m", "raysm", "local", "down", "--force"]
        subprocess.run(
            down,
            env=os.environ | {"RAYSM_HOME": str(folder / "home")},
            capture_output=True,
            timeout=100,
        )


# 36 s of a core. The SDK's ModelTrainer, by itself and with Ray, is shown by test_model_trainer, and
# boto3 by tests of the embedded server.
@pytest.mark.soak
@pytest.mark.parametrize(
    "index", [0, 1, 2, 3, 4], ids=["variables", "role", "Ray", "torchrun", "boto3"]
)
def test_the_page_prints_what_it_shows(printed, index):
    assert_printed(outputs(PAGE)[index], printed)


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("aws") is None, reason="the AWS CLI is not installed")
def test_the_aws_cli_finds_the_job_and_its_result(printed):
    assert_printed(outputs(PAGE)[5], printed)


@pytest.mark.long
def test_the_sdk_asks_for_the_role_at_aws_s_own_address(monkeypatch):
    from sagemaker.core.helper.session_helper import sts_regional_endpoint

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert sts_regional_endpoint("us-east-1") == "https://sts.us-east-1.amazonaws.com"
