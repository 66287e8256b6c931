"""``raysm://NAME`` as an address of Ray's own commands."""

import click
import pytest
from click.testing import CliRunner

import raysm
from raysm.client.tunnel.dashboard import ClientBuilder, get_job_submission_client_cluster_info
from raysm.errors import InvalidRequest


def test_ray_finds_by_dir_what_it_asks_for():
    assert {"get_job_submission_client_cluster_info", "ClientBuilder"} <= set(dir(raysm))
    assert raysm.get_job_submission_client_cluster_info is get_job_submission_client_cluster_info
    assert raysm.ClientBuilder is ClientBuilder


def test_ray_init_is_refused_with_the_way_out():
    with pytest.raises(InvalidRequest, match=r"ray job submit --address raysm://digits .*raysm.Session"):
        ClientBuilder("digits")


def test_what_cannot_be_is_one_line_of_rays_commands_and_raysms_own_error_to_everybody_else(tmp_path, monkeypatch):
    # Refused before any service is asked.
    (tmp_path / "raysm.toml").write_text("nonsense = 1")
    monkeypatch.chdir(tmp_path)

    @click.command()
    def submit():
        get_job_submission_client_cluster_info("digits")

    told = CliRunner().invoke(submit)
    assert (told.exit_code, len(told.output.splitlines())) == (1, 1), told.output
    assert told.output.startswith("Error: ")
    assert "nonsense" in told.output
    with pytest.raises(InvalidRequest) as caught:
        get_job_submission_client_cluster_info("digits")
    assert str(caught.value) == told.output.removeprefix("Error: ").rstrip()
