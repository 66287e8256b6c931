"""Tests of ``raysm.cli.sending``."""

import pytest

from raysm.cli.arguments import parse
from raysm.cli.config import read_settings
from raysm.cli.main import main
from raysm.cli.sending import crowding, facts, prepared, what_sending_does
from raysm.core.protocol.home import VARIABLE
from raysm.errors import InvalidRequest


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, home):
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.py").write_text("pass")
    (tmp_path / "own-1-py3-none-any.whl").write_bytes(b"wheel")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def requirements(*argv):
    return prepared(read_settings(parse(["run", "a.py", *argv]))).request.requirements


def test_the_lines_of_a_requirements_file_are_packages(folder):
    (folder / "requirements.txt").write_text(
        "# ours\ntqdm>=4  # bars\n\nsix @ https://example.org/x#egg=six\n"
    )
    taken = requirements("--requirement", "requirements.txt", "--requirement", "numpy")
    assert taken == ("tqdm>=4", "six @ https://example.org/x#egg=six", "numpy")


def test_a_requirements_file_that_is_not_there_or_has_options_of_pip_is_refused(folder):
    with pytest.raises(InvalidRequest, match=r"--requirement requirements\.txt.*No such file"):
        requirements("--requirement", "requirements.txt")
    (folder / "requirements.txt").write_text("-r other.txt\n")
    with pytest.raises(InvalidRequest, match=r"'-r other\.txt'"):
        requirements("--requirement", "requirements.txt")
    (folder / "requirements.txt").write_text(
        "--extra-index-url https://me:p@hunter2@pip.example/simple\n"
    )
    with pytest.raises(InvalidRequest, match=r"https://\*\*\*@pip\.example/simple'") as raised:
        requirements("--requirement", "requirements.txt")
    assert "hunter2" not in str(raised.value)


def test_a_requirements_file_of_another_system_is_read_or_refused(folder):
    # With the mark of byte order, and lines as Windows ends them.
    (folder / "requirements.txt").write_bytes(b"\xef\xbb\xbftqdm>=4\r\nsix\r\n")
    assert requirements("--requirement", "requirements.txt") == ("tqdm>=4", "six")
    # As PowerShell writes what pip freeze says.
    (folder / "requirements.txt").write_bytes("tqdm>=4\r\n".encode("utf-16"))
    with pytest.raises(InvalidRequest, match=r"--requirement requirements\.txt.* UTF-8"):
        requirements("--requirement", "requirements.txt")


def test_more_instances_than_this_machine_carries_are_warned_of():
    def warned(count, cores):
        return crowding(
            prepared(read_settings(parse(["run", "a.py", "--instances", str(count)]))), cores
        )

    assert "40 instances share the 2 cores of this machine" in warned(40, 2)
    assert warned(8, 2) is None


def told(*argv):
    return {
        label: fact
        for _, label, fact in facts(prepared(read_settings(parse(["run", "a.py", *argv]))))
    }


def test_what_nobody_asked_for_is_told_and_of_a_job_that_is_billed_what_it_costs_at_most():
    assert told() == {"sent": "a.py, 4 bytes"}
    where = [
        "--on",
        "aws",
        "--role",
        "arn:aws:iam::123456789012:role/jobs",
        "--region",
        "us-east-1",
        "--bucket",
        "b",
    ]
    on_aws = told(
        *where, "--instance-type", "ml.m5.large", "--instances", "2", "--max-runtime", "3600"
    )
    assert list(on_aws) == ["image", "sent", "cost"]
    assert on_aws["cost"].startswith(
        "at most 0.24 USD with the volumes: 2 x ml.m5.large at 0.115 USD/h"
    )


pytestmark = pytest.mark.usefixtures("home")


def test_what_is_uploaded_and_to_which_bucket_is_told_by_their_names(folder):
    (folder / "data").mkdir()
    (folder / "data" / "x").touch()
    role = "arn:aws:iam::123456789012:role/x"
    where = [
        "--on",
        "aws",
        "--role",
        role,
        "--region",
        "eu-west-1",
        "--instance-type",
        "ml.m5.large",
        "--bucket",
        "mine",
    ]
    ready = prepared(
        read_settings(parse(["run", "a.py", *where, "--image", "image", "--input", "train=data"]))
    )
    assert what_sending_does(ready) == "uploading train to s3://mine"
    assert what_sending_does(prepared(read_settings(parse(["run", "a.py"])))) == "sending the job"


def test_a_command_that_starts_the_embedded_sagemaker_says_so_before_it_prepares_the_job(
    capsys, tmp_path, monkeypatch
):
    # No server runs in this one.
    monkeypatch.setenv(VARIABLE, str(tmp_path / "home"))
    assert main(["run", "absent.py"]) == 2
    first, refusal = capsys.readouterr().err.splitlines()
    assert (
        first == "waiting: preparing the job, and starting the embedded SageMaker of this machine"
    )
    assert refusal.startswith("raysm: the script 'absent.py' is not there")
    assert main(["run", "a.py", "--dry-run"]) == 0
    assert "waiting" not in capsys.readouterr().err


def test_ctrl_c_before_a_job_is_sent_says_that_nothing_was_sent(capsys, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("raysm.cli.sending.read_settings", interrupted)
    assert main(["run", "a.py"]) == 130
    assert capsys.readouterr().err == "interrupted; nothing was sent\n"
