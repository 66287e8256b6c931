"""``raysm doctor --first-job``: says what the first hour costs, asks, sends its jobs, and prints what they showed.

What flows in is a parsed command line, what flows out are lines and a folder of records.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.client.costs.prices import Price, price_of, price_of_user, volume_usd_per_hour
from raysm.client.doctor import Case, State, examine, intent_of
from raysm.client.first_job.answers import NOT_ASKED, answers, as_markdown
from raysm.client.first_job.blanking import ACCOUNT, Blanks
from raysm.client.first_job.costs import MOST_USD, costs
from raysm.client.first_job.records import Records
from raysm.client.first_job.running import Outcome, run_trials
from raysm.client.first_job.trials import INSTANCES, TRIALS, Trial
from raysm.client.service import Service
from raysm.client.settings import Settings
from raysm.errors import InvalidRequest
from raysm.request import Cluster

__all__ = ["FOLDER", "INSTANCE_TYPE", "blanks_of", "run", "send"]

INSTANCE_TYPE = "ml.m5.large"
"""The cheapest that AWS's own image runs on, and of which every account may have some."""

FOLDER = "first-job"
"""Where what was seen is written, where nothing else is said."""


def run(
    arguments: Arguments,
    settings: Settings,
    console: Console,
    *,
    ask: Callable[[str], str] = input,
    connect: Callable[..., Service] = Service,
    trials: Sequence[Trial] = TRIALS,
) -> int:
    """Send the first jobs, once the doctor has looked and somebody has agreed to the costs.

    Args:
        arguments: The parsed command line.
        settings: What applies.
        console: Where to print.
        ask: Asks a person, and returns what was typed.
        connect: Makes the service of a target.
        trials: The jobs.

    Returns:
        0 where every job ended as it has to, else 1.

    Raises:
        InvalidRequest: The folder is taken, the costs are unknown or too high, or nobody agreed to them.
    """
    folder = arguments.output or Path(FOLDER)
    # What an earlier run showed was paid for, and is not to be mixed with what this one shows.
    if folder.exists() and any(folder.iterdir()):
        raise InvalidRequest(f"{folder} holds something; name another folder for what is seen: --output DIR")
    cluster = _cluster(settings)
    records = Records(folder)
    service = connect(settings.target(), observer=records.observe)
    # On this machine the same jobs cost nothing: nobody has to agree to them.
    if service.target.is_billed:
        if not _looks_well(settings, service, cluster, console):
            raise InvalidRequest("jobs cannot run here yet: fix what is marked BAD above first")
        _agree(arguments, cluster, service.region, console, ask, trials)
    records.begin(blanks_of(service))
    return send(settings, service, cluster, records, console, trials)


def send(
    settings: Settings,
    service: Service,
    cluster: Cluster,
    records: Records,
    console: Console,
    trials: Sequence[Trial] = TRIALS,
) -> int:
    """Send the jobs, print what they showed, and write it down; return the exit code."""
    by_trial: dict[str, Outcome] = {}
    # What an account may demand of every job; all else is each trial's own.
    options = {name: item for name, item in settings.options().items() if name in ("security", "tags", "pip_index")}
    with tempfile.TemporaryDirectory(prefix="raysm-first-job-") as folder:
        outcomes = run_trials(
            service,
            cluster,
            records,
            folder=Path(folder),
            options=options,
            trials=trials,
            show=lambda text: _print(console, text),
        )
        try:
            for outcome in outcomes:
                by_trial[outcome.trial.name] = outcome
                status = outcome.obstacle or (outcome.description.status if outcome.description else "")
                _print(console, f"  {'ok' if outcome.is_good else 'BAD'}: {status}")
        finally:
            # Also where somebody interrupts: what was seen until then is paid for.
            outcomes.close()
            records.write("answers.md", as_markdown(by_trial))
    for answer in answers(by_trial):
        _print(console, f"{answer.question.name}: {answer.text}")
    _print(console, NOT_ASKED)
    _print(console, f"what was seen lies in {records.folder}: look through it before you give it to others")
    return 0 if all(outcome.is_good for outcome in by_trial.values()) else 1


def blanks_of(service: Service) -> Blanks:
    """Return what is known of the account, and must not be in a record."""
    caller = str(service.call("sts", "get_caller_identity")["Arn"])
    role = service.target.job_role()
    return Blanks(
        {
            caller: f"arn:aws:iam::{ACCOUNT}:user/USER",
            role: f"arn:aws:iam::{ACCOUNT}:role/ROLE",
            role.rpartition("/")[2]: "ROLE",
            service.bucket.name: "BUCKET",
            service.account: ACCOUNT,
        }
    )


def _cluster(settings: Settings) -> Cluster:
    if settings.on.names_own_types:
        # One instance, the usual default, shows nothing of how files of several meet.
        chosen = settings.options().get("cluster") or Cluster(INSTANCE_TYPE, count=INSTANCES)
        return chosen if ("cluster", "count") in settings else Cluster(chosen.instance_type, count=INSTANCES)
    return Cluster(count=INSTANCES)


def _looks_well(settings: Settings, service: Service, cluster: Cluster, console: Console) -> bool:
    intent = intent_of({**settings.options(), "cluster": cluster})
    is_well = True
    for finding in examine(Case(service, intent, role=service.target.job_role())):
        if finding.state is not State.GOOD:
            _print(console, f"{finding.word:<4}  {finding.name:<14} {finding.text}")
            _print(console, f"      {'':<14} -> {finding.remedy}" if finding.remedy else "")
        # What could not be looked at stops nothing: a job may run all the same.
        is_well = is_well and (finding.state is not State.BAD or not finding.needed)
    return is_well


def _agree(
    arguments: Arguments,
    cluster: Cluster,
    region: str,
    console: Console,
    ask: Callable[[str], str],
    trials: Sequence[Trial],
) -> None:
    """Show the costs, and return where somebody agrees to them."""
    price = _price(arguments, cluster, region)
    volumes = [volume_usd_per_hour(name, cluster.volume_gb, region) for name in cluster.types]
    volume = None if None in volumes else max(usd for usd in volumes if usd is not None)
    estimate = costs(trials, cluster.size * (price.usd_per_hour + (volume or 0.0)))
    _print(
        console,
        f"{len(trials)} jobs on {cluster.size} x {' or '.join(cluster.types)}, one after the other: likely "
        f"{estimate.likely_usd:.2f} USD, at most {estimate.most_usd:.2f} USD ({price}"
        f"{'' if volume is not None else ', volumes not counted'})",
    )
    if estimate.most_usd > MOST_USD:
        raise InvalidRequest(f"that may be more than {MOST_USD:g} USD; take {INSTANCES} x {INSTANCE_TYPE}")
    if arguments.yes:
        return
    # Of input alone: what else asks needs no terminal.
    if ask is input and not sys.stdin.isatty():
        raise InvalidRequest("cannot ask whether to send these jobs, since there is no terminal; add --yes")
    if ask("send them? [y/N] ").strip().lower() not in ("y", "yes"):
        raise InvalidRequest("nothing was sent")


def _price(arguments: Arguments, cluster: Cluster, region: str) -> Price:
    """Return what an instance costs an hour."""
    if arguments.price_per_hour is not None:
        return price_of_user(arguments.price_per_hour)
    # Groups have several types, and no one price.
    prices = [] if cluster.groups else [price_of(name, region) for name in cluster.types]
    listed_prices = [price for price in prices if price is not None]
    if not prices or len(listed_prices) < len(prices):
        raise InvalidRequest(
            f"no price of {' or '.join(cluster.types)} in {region} is at hand, and nothing is sent for an unknown one; "
            "give --price-per-hour, of one instance, from https://aws.amazon.com/sagemaker/ai/pricing/"
        )
    # Whichever the service takes, it costs no more than that.
    return max(listed_prices, key=lambda price: price.usd_per_hour)


def _print(console: Console, text: str) -> None:
    if text:
        console.print(Text(text), soft_wrap=True, highlight=False)
