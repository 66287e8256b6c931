"""AWS's plugin as raysm runs it, by a program that notes how it was called."""

import json

import pytest

from raysm.client.tunnel.official_plugin import OfficialPlugin
from raysm.client.tunnel.session import Pass

ENTRY = Pass(session="s-1", url="wss://there", token="secret-token")
REQUEST = {"Target": "sagemaker-training-job:job_algo-1", "DocumentName": "d", "Parameters": {"command": ["sh"]}}
PLUGIN = """#!/bin/sh
if [ "$1" = --version ]; then echo {version}; exit; fi
for argument; do echo "$argument"; done > {folder}/arguments
printenv AWS_SSM_START_SESSION_RESPONSE > {folder}/response
exit {code}
"""


@pytest.fixture
def install(tmp_path):
    """Installs a plugin of a version; returns what finds it."""

    def write(version="1.2.650.0", code=0):
        path = tmp_path / "session-manager-plugin"
        path.write_text(PLUGIN.format(version=version, folder=tmp_path, code=code))
        path.chmod(0o755)
        return lambda name: str(path) if name == path.name else None

    return write


def run(plugin):
    return plugin.run(ENTRY, REQUEST, region="eu-west-1", profile="team", endpoint="https://ssm.there")


def test_it_is_called_as_the_aws_cli_calls_it(install, tmp_path):
    assert run(OfficialPlugin.find(install())) == 0
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:4] == ["AWS_SSM_START_SESSION_RESPONSE", "eu-west-1", "StartSession", "team"]
    assert json.loads(arguments[4]) == REQUEST
    assert arguments[5:] == ["https://ssm.there"]


def test_the_token_is_in_its_environment_alone(install, tmp_path):
    run(OfficialPlugin.find(install()))
    response = json.loads((tmp_path / "response").read_text())
    assert response == {"SessionId": "s-1", "TokenValue": "secret-token", "StreamUrl": "wss://there"}
    assert "secret-token" not in (tmp_path / "arguments").read_text()


def test_its_exit_code_is_returned(install):
    assert run(OfficialPlugin.find(install(code=3))) == 3


@pytest.mark.parametrize("version", ["1.2.497.0", "1.1.61.0", "who knows"])
def test_one_that_takes_the_token_as_an_argument_is_not_used(install, version):
    assert OfficialPlugin.find(install(version)) is None


def test_where_there_is_none_there_is_none():
    assert OfficialPlugin.find(lambda name: None) is None
