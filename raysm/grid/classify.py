"""How SageMaker says no: its words flow in, the class of an end flows out. The words are data, with a version.

Where they were seen: public reports of users and the API's own model; none of them by this project on AWS. What
matches nothing is UNKNOWN, which has an action of its own, so that no new word stops a grid.
"""

import re
from dataclasses import dataclass

from raysm.client.job.description import Description, SecondaryStatus, Status
from raysm.errors import CredentialsExpired, InvalidRequest, ServiceError
from raysm.grid.endings import ENDINGS, Ending

__all__ = [
    "VERSION",
    "LearnedQuota",
    "Verdict",
    "brief",
    "of_end",
    "of_refusal",
    "quota_in",
    "same_reason",
    "shortened",
]

VERSION = "2026-11-24"
"""Of the words below."""

REFUSALS: tuple[tuple[str, str, str], ...] = (
    # Code, words (both regular expressions, found anywhere), class: the first that fits counts.
    (r"^(Throttl|TooManyRequests|RequestLimitExceeded|SlowDown)", "", "THROTTLED"),
    # "Rate exceeded" comes under several codes, ClientError among them.
    ("", r"Rate exceeded", "THROTTLED"),
    (r"^ResourceLimitExceeded", "", "QUOTA"),
    # Said by Create itself for capacity that is reserved by a training plan.
    (r"CapacityExceeded|InsufficientCapacity", "", "CAPACITY"),
    (r"^ResourceInUse", "", "CLASH"),
    (
        r"^(AccessDenied|UnrecognizedClient|InvalidClientTokenId|InvalidSignature|OptInRequired|ExpiredToken)",
        "",
        "DENIED",
    ),
    ("", r"no AWS credentials", "DENIED"),
    (r"^ValidationException", "", "INVALID"),
    # AWS Batch has this one code for whatever is wrong with a request; its throttling has been taken above.
    (r"^ClientException", "", "INVALID"),
    # botocore's own check, before anything is sent.
    ("", r"Parameter validation failed|Unknown parameter in input", "INVALID"),
)
"""What Create answers."""

DETERMINISTIC = (
    "ArithmeticError", "AssertionError", "AttributeError", "FileNotFoundError", "ImportError", "IndentationError",
    "IndexError", "IsADirectoryError", "KeyError", "LookupError", "ModuleNotFoundError", "NameError",
    "NotADirectoryError", "NotImplementedError", "OverflowError", "PermissionError", "RecursionError", "SyntaxError",
    "TabError", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError", "ValueError",
    "ZeroDivisionError",
    # raysm's own: the request, or the image, is wrong.
    "InvalidConfig", "InvalidRequest", "MissingDependency",
)  # fmt: skip
"""Exceptions that the same program raises again from the same row, so that a row which fails by one is not retried.

All others may pass: RuntimeError (CUDA, NCCL), OSError and ConnectionError (network), MemoryError, a signal, an exit
status, and exceptions of libraries.
"""

_CLASS = rf"(?:{'|'.join(DETERMINISTIC)})(?=[:,\s]|$)"
_USAGE = r"SystemExit: 2, raised at argparse\.py|the script ended with 2: \S+: error: "
PROGRAM_ERROR = rf"(?:rank \d+ on \S+: |the script ended with \d+: )?{_CLASS}|{_USAGE}"
"""How the reason of a program begins that failed by one of them, or did not take its arguments (argparse)."""

FAILURES: tuple[tuple[str, str], ...] = (
    # First: behind it stand the program's own words, and they may be any of those below. S3 says of itself what
    # SageMaker does, and a queue of the program's may have not enough capacity.
    (rf"^AlgorithmError: (?:{PROGRAM_ERROR})", "ERROR"),
    (r"^AlgorithmError", "USER"),
    (r"^CapacityError|Unable to provision requested ML compute capacity", "CAPACITY"),
    (r"[Ii]nsufficient\w*[ -]?[Cc]apacity|not enough capacity|InsufficientInstanceCapacity", "CAPACITY"),
    (r"^InternalServerError|We encountered an internal error", "SERVICE"),
    (r"^ClientError|exit code", "USER"),
)
"""What FailureReason says of a job that Failed."""

QUOTA = re.compile(
    r"service limit '(?P<type>ml\.\S+) for (?P<spot>spot )?(?:training|processing) job usage' is "
    r"(?P<limit>\d+) Instances?"
    r", with current utilization of (?P<used>\d+) Instances? and a request delta of (?P<wanted>\d+)"
)

NEVER_RAN = (SecondaryStatus.STARTING, SecondaryStatus.PENDING, SecondaryStatus.LAUNCHING, SecondaryStatus.PREPARING)
"""What a job goes through before it works."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A class, and the words that it was found by."""

    ending: Ending
    """What follows from it."""
    reason: str
    """The service's own words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedQuota:
    """What a refusal says of a quota."""

    limit: int
    """Instances that the account may have."""
    used: int
    """Of them, in use by anybody."""
    wanted: int
    """What was asked for."""


def of_refusal(error: ServiceError | InvalidRequest) -> Verdict:
    """Return what an error of Create means, or that a row's job cannot even be made."""
    text = str(error)
    if isinstance(error, InvalidRequest):
        return Verdict(ending=ENDINGS["INVALID"], reason=text)
    for code, words, name in REFUSALS:
        if re.search(code, error.code) and re.search(words, text):
            return Verdict(ending=ENDINGS[name], reason=text)
    # By its class: the codes that mean it are many, and stand where the error is made.
    if isinstance(error, CredentialsExpired):
        return Verdict(ending=ENDINGS["DENIED"], reason=text)
    return Verdict(ending=ENDINGS["MAYBE" if error.is_transient else "UNKNOWN"], reason=text)


def of_end(description: Description, wish: str = "") -> Verdict | None:
    """Return what a job's last status means; None of one that goes on.

    Args:
        description: What Describe says.
        wish: Why the controller itself asked to stop it; empty where it did not.
    """
    if not description.status.is_terminal:
        return None
    return Verdict(ending=ENDINGS[_name(description, wish)], reason=description.reason or description.message)


def _name(description: Description, wish: str) -> str:
    if description.status is Status.COMPLETED:
        return "OK"
    if description.status is not Status.FAILED:
        return _of_stop(description, wish)
    # As the service wrote it: the reason for people has lost "AlgorithmError:", by which the user's own fault is told.
    return _of_failure(str(description.answer.get("FailureReason") or description.reason))


def _of_failure(reason: str) -> str:
    return next((name for words, name in FAILURES if re.search(words, reason)), "UNKNOWN")


def _of_stop(description: Description, wish: str) -> str:
    if description.secondary is SecondaryStatus.MAX_RUNTIME_EXCEEDED:
        return "TIME"
    # AWS Batch's documentation has jobs that found no capacity end as Stopped, others were seen Failed: take both.
    if description.secondary is SecondaryStatus.MAX_WAIT_EXCEEDED or wish == "patience":
        return "CAPACITY"
    phases = [SecondaryStatus(status) for status, _, _ in description.transitions]
    ended_by_itself = not any(phase is SecondaryStatus.STOPPING for phase in phases)
    worked = [phase for phase in phases if phase not in (*NEVER_RAN, SecondaryStatus.STOPPED)]
    return "CAPACITY" if phases and ended_by_itself and not worked and not wish else "STOPPED"


def quota_in(reason: str) -> LearnedQuota | None:
    """Return what a refusal's words say of a quota; None where they say nothing."""
    numbers = QUOTA.search(reason)
    if numbers is None:
        return None
    return LearnedQuota(limit=int(numbers["limit"]), used=int(numbers["used"]), wanted=int(numbers["wanted"]))


def brief(reason: str) -> str:
    """Return a reason in one line: its first line (the error and what becomes of the row), and its last if that is new.

    The last line of a long reason names the error that caused it; of a traceback it is the error itself once more.
    """
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    if len(lines) < 2 or lines[-1] in lines[0]:
        return "".join(lines[:1])
    return f"{lines[0]} … {lines[-1]}"


def shortened(reason: str, length: int) -> str:
    """Return at most ``length`` characters of a reason: the start and the end, which names the error that caused it."""
    if len(reason) <= length:
        return reason
    begin = reason.partition("\n")[0][: length // 2]
    return f"{begin} … {reason[len(begin) + 3 - length :]}"


def same_reason(reason: str) -> str:
    """Return the words without what tells two jobs apart: numbers, names of hosts, and what follows the first line."""
    lines = reason.strip().splitlines()
    return re.sub(r"\S*\d\S*", "#", lines[0]) if lines else ""
