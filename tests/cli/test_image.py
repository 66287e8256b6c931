"""``raysm image build``: what is printed, and what a machine without docker says."""

import json

import pytest
from rich.console import Console

from raysm.cli import image
from raysm.cli.arguments import parse
from raysm.cli.main import main

HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.fixture(autouse=True)
def no_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def lines(capsys, *arguments):
    assert main(["image", "build", "--dry-run", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_dry_run_prints_the_commands_and_runs_none(capsys):
    (build,) = lines(capsys, "--tag", "mine:1", "--platform", "linux/arm64")
    assert build.startswith("docker ")
    assert "--platform linux/arm64" in build
    assert build.endswith("--tag mine:1 CONTEXT")


def test_a_push_is_printed_with_the_password_on_its_way_through_stdin(capsys):
    repository, login, build, push = lines(capsys, "--push", "--tag", f"{HOST}/team/raysm:1")
    assert "create-repository --region eu-west-1 --repository-name team/raysm" in repository
    assert login.endswith(f"| docker login --username AWS --password-stdin {HOST}")
    assert f"--tag {HOST}/team/raysm:1" in build
    assert push == f"docker push {HOST}/team/raysm:1"


def test_a_base_in_ecr_is_logged_in_to(capsys):
    base = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
    login, _ = lines(capsys, "--base", f"{base}/pytorch:2.13-cpu-amzn2023-sagemaker")
    assert "--region us-east-1" in login
    assert login.endswith(base)


def test_a_tag_that_cannot_be_is_an_error_of_the_command_line(capsys):
    assert main(["image", "build", "--dry-run", "--tag", "No Tag"]) == 2
    assert "raysm: --tag is NAME:TAG" in capsys.readouterr().err


def test_a_machine_without_docker_says_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["image", "build"]) == 2
    assert "there is no command docker" in capsys.readouterr().err


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """The one docker command that is found: it says yes to all, and that its Python is 3.12."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text('#!/bin/sh\n[ "$1" = run ] && echo 3.12\nexit 0\n')
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.usefixtures("docker")
def test_what_was_built_is_said_with_how_to_use_it(capsys):
    image.run(parse(["image", "build", "--tag", "mine:1"]), Console(width=200))
    said = capsys.readouterr().out
    assert "image    mine:1, with Python 3.12" in said
    assert "--instance-kind docker --image mine:1" in said


@pytest.mark.usefixtures("docker")
def test_for_programs_it_is_json(capsys):
    image.run(parse(["image", "build", "--tag", "mine:1", "--json"]), Console())
    assert json.loads(capsys.readouterr().out) == {"image": "mine:1", "python": "3.12", "pushed": False}
