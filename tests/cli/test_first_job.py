"""``raysm doctor --first-job``: says what it costs, asks, and sends nothing where somebody does not agree."""

import io

import pytest
from rich.console import Console

from raysm.cli import first_job
from raysm.cli.arguments import parse
from raysm.cli.choosing import read_settings
from raysm.client.costs.prices import RegionPrices, save_prices
from raysm.client.first_job.blanking import Blanks
from raysm.client.first_job.records import Records
from raysm.client.first_job.trials import TRIALS
from raysm.errors import InvalidRequest
from raysm.request import Cluster
from raysm.testing import Answer, FakeSageMaker
from tests.support import aws_account
from tests.support.aws_account import BUCKET, ROLE
from tests.support.homes import in_home
from tests.support.sagemaker import IMAGE, REGION

ON_AWS = ("--on", "aws", "--role", ROLE, "--region", REGION, "--bucket", BUCKET, "--image", IMAGE)


def run(tmp_path, account, *words, answer="n"):
    """Return what was printed, and what a person was asked."""
    arguments = parse(["doctor", "--first-job", "--output", str(tmp_path / "out"), *ON_AWS, *words])
    asked, printed = [], io.StringIO()

    def ask(question):
        asked.append(question)
        return answer

    console = Console(file=printed, width=200)
    with pytest.raises(InvalidRequest) as refusal:
        first_job.run(
            arguments, read_settings(arguments), console, ask=ask, connect=lambda target, observer: account.service
        )
    return printed.getvalue(), asked, str(refusal.value)


def test_the_costs_are_shown_before_anybody_is_asked_and_no_sends_nothing(tmp_path):
    with aws_account.account() as account:
        account.quotas.applied |= dict.fromkeys(account.quotas.applied, 4)
        printed, asked, refusal = run(tmp_path, account, "--price-per-hour", "0.115")
        assert "9 jobs on 2 x ml.m5.large" in printed
        assert "at most 0.73 USD" in printed
        assert asked == ["send them? [y/N] "]
        assert refusal == "nothing was sent"
        assert not account.clients["sagemaker"].calls
    assert not (tmp_path / "out").exists()


def test_where_the_doctor_finds_what_is_bad_nobody_is_asked(tmp_path):
    with aws_account.account() as account:
        account.deny("iam:PassRole")
        printed, asked, refusal = run(tmp_path, account)
    assert "iam:PassRole" in printed
    assert asked == []
    assert "fix what is marked BAD" in refusal


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("--price-per-hour", "3.7"), "may be more than 1 USD"),
        ((), "no price of ml.m5.large in eu-west-1 is at hand"),
    ],
)
def test_costs_that_are_too_high_or_unknown_are_refused(tmp_path, words, refusal):
    with aws_account.account() as account:
        assert refusal in run(tmp_path, account, *words, "--yes")[2]


def test_of_a_choice_of_types_the_costs_are_those_of_the_dearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raysm.toml").write_text('[cluster]\ncount = 2\nalternatives = ["ml.c5.large"]\n')
    with in_home(tmp_path / "home"), aws_account.account() as account:
        usd = {"ml.m5.large": 0.1, "ml.c5.large": 0.125}
        save_prices(RegionPrices(region=REGION, as_of="2026-11-01", version="v1", usd=usd))
        account.quotas.applied |= dict.fromkeys(account.quotas.applied, 4)
        printed, _, refusal = run(tmp_path, account, "--instance-type", "ml.m5.large")
    assert refusal == "nothing was sent"
    (costs,) = (line for line in printed.splitlines() if line.startswith("9 jobs"))
    assert costs.startswith("9 jobs on 2 x ml.m5.large or ml.c5.large, one after the other")
    assert "0.125 USD/h" in costs


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()
    with aws_account.account() as account:
        assert "holds something" in run(tmp_path, account)[2]


def test_what_the_jobs_showed_is_printed_and_written_down(tmp_path, capsys):
    fake = FakeSageMaker(tmp_path / "home")
    fake.answer("script", Answer(status="Failed", reason="CapacityError: none"))
    records = Records(tmp_path / "out")
    records.begin(Blanks({}))
    settings = read_settings(parse(["doctor", "--first-job"]))
    code = first_job.send(settings, fake, Cluster(count=2), records, Console(width=200))
    printed = capsys.readouterr().out
    assert code == 1
    assert "BAD: Failed" in printed
    assert printed.count("ok: Completed") == len(TRIALS) - 4
    assert "order of uploads: " in printed
    assert "| training: " in (tmp_path / "out" / "answers.md").read_text()


def test_names_of_the_account_are_blanked():
    with aws_account.account() as account:
        text = first_job.blanks_of(account.service).text(f"{ROLE} {BUCKET} {aws_account.USER}")
    assert text == "arn:aws:iam::123456789012:role/ROLE BUCKET arn:aws:iam::123456789012:user/USER"
