"""Whether there is a way to an index, and how pip is told of it."""

import os
import stat

import pytest

from raysm.bootstrap.package_index import check_reachable, credentials_of, pip_config
from raysm.bootstrap.packages import Pip, PipFailed
from raysm.errors import InvalidRequest
from raysm.request.external import CodeArtifact
from tests.support.package_index import package_index, silent_port
from tests.support.wheels import make_wheel

REPOSITORY = CodeArtifact.of("arn:aws:codeartifact:eu-west-1:123456789012:repository/domain/repo")


def test_an_index_that_is_silent_is_given_up_in_one_sentence_with_the_remedies():
    with silent_port() as port, pytest.raises(InvalidRequest) as caught:
        check_reachable(f"https://me:secret@127.0.0.1:{port}/simple", patience_s=0.5)
    assert str(caught.value) == (
        f"there is no way from this instance to the package index https://127.0.0.1:{port}/simple: 127.0.0.1 does not "
        f"answer on port {port} (tried for 0.5 s); give the subnets a NAT, name an index that they reach (pip_index), "
        "let the packages travel (wheels), or take an image that has them"
    )


def test_the_address_goes_into_a_file_that_only_its_owner_can_read(tmp_path):
    variables = pip_config(tmp_path, "https://aws:token@host/simple/")
    path = tmp_path / "pip.conf"
    assert variables == {"PIP_CONFIG_FILE": str(path)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().count("index-url = https://aws:token@host/simple/\n") == 2


def test_pip_is_let_in_by_the_token_which_stands_in_no_requirement(tmp_path):
    with package_index(make_wheel(tmp_path / "wheels", "guarded"), token="a/token") as url:
        guarded = url.replace("http://", "http://aws:a%2Ftoken@")
        environment = {"PATH": os.environ["PATH"]}
        with pytest.raises(PipFailed):
            Pip(tmp_path, environment | pip_config(tmp_path, url)).resolve(["guarded"])
        pip = Pip(tmp_path, environment | pip_config(tmp_path, guarded))
        exact = pip.resolve(["guarded"])
        pip.install(exact, tmp_path / "site", [])
    assert (tmp_path / "site" / "guarded.py").exists()
    assert "token" not in "".join(exact)


class FakeCodeArtifact:
    def __init__(self, region):
        assert region == "eu-west-1"

    def get_authorization_token(self, **owner):
        assert owner == {"domain": "domain", "domainOwner": "123456789012"}
        return {"authorizationToken": "a/token+"}

    def get_repository_endpoint(self, **place):
        host = f"{place['domain']}-{place['domainOwner']}.d.codeartifact"
        return {"repositoryEndpoint": f"https://{host}/{place['format']}/{place['repository']}/"}


def test_a_repository_of_codeartifact_gets_the_role_s_token():
    url = credentials_of(REPOSITORY, FakeCodeArtifact)
    assert url == "https://aws:a%2Ftoken%2B@domain-123456789012.d.codeartifact/pypi/repo/simple/"


def test_a_role_that_may_not_is_told_which_permissions_it_needs():
    class Denied(FakeCodeArtifact):
        def get_authorization_token(self, **_):
            raise PermissionError("AccessDenied")

    with pytest.raises(InvalidRequest, match="AccessDenied; it needs codeartifact:GetAuthorizationToken, "):
        credentials_of(REPOSITORY, Denied)
