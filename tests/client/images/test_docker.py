import pytest

from raysm.client.images.docker import Docker
from raysm.errors import MissingDependency, ServiceError


def test_a_machine_without_docker_says_what_to_install(tmp_path):
    with pytest.raises(MissingDependency, match="no command .*no-docker: install Docker.*--dry-run"):
        Docker(str(tmp_path / "no-docker"))


def test_a_daemon_that_is_down_is_said_with_its_own_words(recorded):
    recorded.answer(version={"code": 1, "stderr": "noise\nCannot connect to the Docker daemon"})
    with pytest.raises(ServiceError, match=r"daemon does not answer: Cannot connect to the Docker daemon; start it"):
        recorded.docker.check_daemon()


def test_a_daemon_that_answers_is_well(recorded):
    recorded.docker.check_daemon()
    assert recorded.told("version")


def test_an_answer_is_its_standard_output(recorded):
    assert recorded.docker.ask("run", "x") == "3.12"


def test_a_question_that_fails_says_which_and_why(recorded):
    recorded.answer(run={"code": 125, "stderr": "no such image"})
    with pytest.raises(ServiceError, match=r"^docker run failed: no such image$"):
        recorded.docker.ask("run", "x")


def test_whether_there_is_buildx(recorded):
    assert not recorded.docker.has_buildx()
    recorded.answer()
    assert recorded.docker.has_buildx()


def test_a_password_is_no_argument(recorded):
    recorded.docker.log_in("registry", "secret")
    (call,) = recorded.calls
    assert call["stdin"] == "secret"
    assert call["arguments"] == ["login", "--username", "AWS", "--password-stdin", "registry"]


def test_a_login_that_is_refused_does_not_tell_the_password(recorded):
    recorded.answer(login={"code": 1, "stderr": "denied"})
    with pytest.raises(ServiceError, match="^docker login registry failed: denied$"):
        recorded.docker.log_in("registry", "secret")


def test_a_command_that_is_shown_leaves_stdout_to_raysm(recorded, capfd):
    recorded.answer(build={"stdout": "step 1"})
    recorded.docker.show(("build", "."))
    captured = capfd.readouterr()
    assert (captured.out, captured.err.strip()) == ("", "step 1")


def test_one_that_fails_says_so(recorded):
    recorded.answer(build={"code": 2})
    with pytest.raises(ServiceError, match="docker build failed with exit code 2"):
        recorded.docker.show(("build", "."))
