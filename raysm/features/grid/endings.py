"""How an attempt can end: classes of ends, their consequences, and SageMaker's words for each.

The words come from public reports of users and from the API's model; this project has seen none of
them on AWS. Words that match no pattern are UNKNOWN, a class with its own consequences, so that new
words do not stop a grid.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from raysm.core.client.job.description import (
    NEVER_RAN,
    Description,
    SecondaryStatus,
    Status,
    budget_used,
)
from raysm.core.client.regions import NO_CAPACITY_CODE, NO_CAPACITY_REASON
from raysm.errors import CredentialsExpired, InvalidRequest, ServiceError
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.row import RowState


class EndingName(StrEnum):
    """The name of a class of ends; ``ENDINGS`` says what each means."""

    OK = "OK"
    THROTTLED = "THROTTLED"
    MAYBE = "MAYBE"
    QUOTA = "QUOTA"
    CAPACITY = "CAPACITY"
    SERVICE = "SERVICE"
    ERROR = "ERROR"
    USER = "USER"
    INVALID = "INVALID"
    DENIED = "DENIED"
    TIME = "TIME"
    BUDGET = "BUDGET"
    LEFT = "LEFT"
    STOPPED = "STOPPED"
    CLASH = "CLASH"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """A class of ways in which an attempt ends, and what follows for the row and the place."""

    name: EndingName = field(kw_only=False)
    row_state: RowState = RowState.WAITING
    """The row's state after it. A waiting row may fail instead, by the limits below."""
    is_end: bool = True
    """True if the attempt has ended; otherwise the same Create is sent again."""
    is_doubtful: bool = False
    """True if the job may exist although Create has failed."""
    is_throttle: bool = False
    """True if the service refuses the rate of calls, and not this one."""
    uses_retry: bool = False
    """True if it counts against the row's retries."""
    is_users_error: bool = False
    """True for errors of the user: the grid pauses if its first jobs all end like this for the same
    reason."""
    is_capacity: bool = False
    """True if the place is out of instances; those that it gave keep running."""
    backoff_after: int = 0
    """Consecutive endings after which the grid backs off from the place; 0 means never."""
    max_count: int = 0
    """Endings of this class after which the row fails; 0 is no limit."""
    max_started: int = 0
    """Like ``max_count``, for attempts that got their instances and so cost money."""
    closes_region: bool = False
    """True if no row is sent to the region for a while."""
    binds_region: bool = False
    """True if later attempts must be in the same region: the row's checkpoints are in its
    bucket."""
    is_waste: bool = True
    """True if the attempt's cost counts as wasted."""
    advice: str = ""
    """What the user can do, after the reason of a row that failed."""


ENDINGS: dict[str, Ending] = {
    each.name: each
    for each in (
        Ending(EndingName.OK, row_state=RowState.DONE, is_waste=False),
        # It costs nothing, and says nothing about the place.
        Ending(
            EndingName.THROTTLED,
            is_end=False,
            is_throttle=True,
            advice="the grid sends more slowly",
        ),
        Ending(
            EndingName.MAYBE,
            is_end=False,
            is_doubtful=True,
            closes_region=True,
            advice="the same call is sent again",
        ),
        Ending(
            EndingName.QUOTA,
            backoff_after=1,
            advice="ask for a higher quota, or give more types or regions",
        ),
        # Without instances an attempt costs nothing, and ``Rules.give_up_s`` is the limit. A place
        # that gives instances and takes them away needs its own limit, since each such attempt
        # costs money.
        Ending(
            EndingName.CAPACITY,
            is_capacity=True,
            backoff_after=1,
            max_started=8,
            advice="give more types or regions, or wait",
        ),
        # SageMaker has already restarted the job by its RetryStrategy: one more attempt here, then
        # in other places.
        Ending(
            EndingName.SERVICE, backoff_after=2, max_count=8, advice="SageMaker failed, not the row"
        ),
        # No retry: see DETERMINISTIC.
        Ending(
            EndingName.ERROR,
            row_state=RowState.FAILED,
            is_users_error=True,
            advice=(
                "the same program would fail again: "
                "correct it, or the row, then raysm grid retry NAME"
            ),
        ),
        Ending(
            EndingName.USER,
            uses_retry=True,
            is_users_error=True,
            advice="read the job's log, correct the program, then raysm grid retry NAME",
        ),
        Ending(
            EndingName.INVALID,
            row_state=RowState.FAILED,
            is_users_error=True,
            advice="correct the request or the row",
        ),
        Ending(
            EndingName.DENIED,
            closes_region=True,
            advice="log in again, or ask for the permission named above",
        ),
        # The row's checkpoint is in the bucket of this region.
        Ending(
            EndingName.TIME,
            uses_retry=True,
            binds_region=True,
            advice="raise max_runtime_s, or keep checkpoints",
        ),
        # A further attempt would have the same cap.
        Ending(
            EndingName.BUDGET,
            row_state=RowState.FAILED,
            binds_region=True,
            advice="raise max_cost of the jobs, then raysm grid retry NAME",
        ),
        Ending(
            EndingName.LEFT, is_waste=False, advice="the row goes to another region of the grid"
        ),
        Ending(
            EndingName.STOPPED,
            row_state=RowState.STOPPED,
            advice="raysm grid retry NAME queues it again",
        ),
        # Another user's job has this name; the next attempt has another name.
        Ending(
            EndingName.CLASH,
            max_count=8,
            is_waste=False,
            advice="another job has this name: give the grid another --name",
        ),
        # One more attempt here, one in another place; then the user must look.
        Ending(
            EndingName.UNKNOWN,
            backoff_after=1,
            max_count=3,
            advice="report this reason to raysm's authors",
        ),
    )
}


def find_ending(name: str) -> Ending:
    return ENDINGS.get(name, ENDINGS[EndingName.UNKNOWN])


def region_of_checkpoints(attempts: Sequence[Attempt]) -> str | None:
    """Return the region whose bucket has a row's checkpoints; None if the row has none."""
    return next(
        (each.region for each in reversed(attempts) if find_ending(each.ending).binds_region), None
    )


REFUSALS: tuple[tuple[str, str, EndingName], ...] = (
    # Pattern of the code, pattern of the message, class; the first match counts.
    (r"^(Throttl|TooManyRequests|RequestLimitExceeded|SlowDown)", "", EndingName.THROTTLED),
    # "Rate exceeded" comes under several codes, ClientError among them.
    ("", r"Rate exceeded", EndingName.THROTTLED),
    (r"^ResourceLimitExceeded", "", EndingName.QUOTA),
    # Create itself says this for capacity that is reserved by a training plan.
    (NO_CAPACITY_CODE, "", EndingName.CAPACITY),
    (r"^ResourceInUse", "", EndingName.CLASH),
    (
        r"^(AccessDenied|UnrecognizedClient|InvalidClientTokenId|InvalidSignature"
        r"|OptInRequired|ExpiredToken)",
        "",
        EndingName.DENIED,
    ),
    ("", r"no AWS credentials", EndingName.DENIED),
    (r"^ValidationException", "", EndingName.INVALID),
    # AWS Batch has only this code for invalid requests; throttling is matched above.
    (r"^ClientException", "", EndingName.INVALID),
    # botocore's own validation.
    ("", r"Parameter validation failed|Unknown parameter in input", EndingName.INVALID),
)

DETERMINISTIC = (
    "ArithmeticError", "AssertionError", "AttributeError", "FileNotFoundError", "ImportError",
    "IndentationError", "IndexError", "IsADirectoryError", "KeyError", "LookupError",
    "ModuleNotFoundError", "NameError", "NotADirectoryError", "NotImplementedError",
    "OverflowError", "PermissionError", "RecursionError", "SyntaxError", "TabError", "TypeError",
    "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError", "ValueError",
    "ZeroDivisionError",
    # raysm's own: the request, or the image, is wrong.
    "InvalidConfig", "InvalidRequest", "MissingDependency",
)  # fmt: skip
"""Exceptions that the same program would raise again for the same row, so that the row is not
retried.

All others may pass: RuntimeError (CUDA, NCCL), OSError and ConnectionError (network), MemoryError,
a signal, an exit status, and exceptions of libraries.
"""

_CLASS = rf"(?:{'|'.join(DETERMINISTIC)})(?=[:,\s]|$)"
_USAGE = r"(?:SystemExit: 2,|the script ended with 2:|rank \d+ on \S+: exit code 2:) [^:]+: error: "
PROGRAM_ERROR = rf"(?:rank \d+ on \S+: |the script ended with \d+: )?{_CLASS}|{_USAGE}"
"""Beginning of the message if the program failed with one of them, or argparse refused its
arguments."""

FAILURES: tuple[tuple[str, EndingName], ...] = (
    # First, since the program's own message follows, which may match any pattern below.
    (rf"^AlgorithmError: (?:{PROGRAM_ERROR})", EndingName.ERROR),
    (r"^AlgorithmError", EndingName.USER),
    (NO_CAPACITY_REASON, EndingName.CAPACITY),
    (r"^InternalServerError|We encountered an internal error", EndingName.SERVICE),
    (r"^ClientError|exit code", EndingName.USER),
)
"""Patterns of FailureReason with their classes; the first match counts."""

QUOTA = re.compile(
    r"service limit '(?P<type>ml\.\S+) for (?P<spot>spot )?(?:training|processing) job usage' is "
    r"(?P<limit>\d+) Instances?"
    r", with current utilization of (?P<used>\d+) Instances? and a request delta of (?P<wanted>\d+)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    ending: Ending
    reason: str


@functools.cache
def _refusals() -> tuple[tuple[re.Pattern[str], re.Pattern[str], EndingName], ...]:
    return tuple((re.compile(code), re.compile(words), name) for code, words, name in REFUSALS)


def classify_refusal(error: ServiceError | InvalidRequest) -> Verdict:
    text = str(error)
    if isinstance(error, InvalidRequest):
        return Verdict(ending=ENDINGS[EndingName.INVALID], reason=text)
    for code, words, name in _refusals():
        if code.search(error.code) and words.search(text):
            return Verdict(ending=ENDINGS[name], reason=text)
    # By the exception's class, which covers many codes.
    if isinstance(error, CredentialsExpired):
        return Verdict(ending=ENDINGS[EndingName.DENIED], reason=text)
    name = EndingName.MAYBE if error.is_transient else EndingName.UNKNOWN
    return Verdict(ending=ENDINGS[name], reason=text)


def classify_end(description: Description, stop_reason: str = "") -> Verdict | None:
    """Return the class of a job's end; None if the job has not ended."""
    if not description.status.is_terminal:
        return None
    if description.status is Status.COMPLETED:
        name = EndingName.OK
    elif description.status is Status.FAILED:
        # The service's own text: description.reason lacks "AlgorithmError:", which marks an error
        # of the program.
        reason = str(description.answer.get("FailureReason") or description.reason)
        name = next(
            (name for words, name in FAILURES if re.search(words, reason)), EndingName.UNKNOWN
        )
    else:
        name = _name_of_stop(description, stop_reason)
    reason = description.reason or budget_used(description).partition("\n")[0]
    return Verdict(ending=ENDINGS[name], reason=reason or description.message)


def _name_of_stop(description: Description, stop_reason: str) -> EndingName:
    if description.used_budget_usd is not None:
        return EndingName.BUDGET
    if description.secondary is SecondaryStatus.MAX_RUNTIME_EXCEEDED:
        return EndingName.TIME
    # By the documentation of AWS Batch, jobs without capacity end as Stopped; users have seen
    # Failed. Accept both.
    if description.secondary is SecondaryStatus.MAX_WAIT_EXCEEDED or stop_reason == "patience":
        return EndingName.CAPACITY
    phases = [SecondaryStatus(status) for status, _, _ in description.transitions]
    ended_by_itself = not any(phase is SecondaryStatus.STOPPING for phase in phases)
    worked = [phase for phase in phases if phase not in (*NEVER_RAN, SecondaryStatus.STOPPED)]
    if phases and ended_by_itself and not worked and not stop_reason:
        return EndingName.CAPACITY
    return EndingName.STOPPED


def parse_quota(reason: str) -> tuple[int, int] | None:
    """Return the quota that a refusal states, and the instances of it that are in use, or None.

    The count includes all jobs of the account.
    """
    numbers = QUOTA.search(reason)
    return None if numbers is None else (int(numbers["limit"]), int(numbers["used"]))


def brief(reason: str) -> str:
    """Return a reason in one line: its first line, and its last line if that says more.

    The first line has the error and its consequence. The last line of a long reason names the
    underlying error; the last line of a traceback only repeats the error.
    """
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    if len(lines) < 2 or lines[-1] in lines[0]:
        return "".join(lines[:1])
    return f"{lines[0]} … {lines[-1]}"


def shortened(reason: str, length: int) -> str:
    """Return at most ``length`` characters of a reason.

    The start is kept, and the end, which has the underlying error.
    """
    if len(reason) <= length:
        return reason
    begin = reason.partition("\n")[0][: length // 2]
    return f"{begin} … {reason[len(begin) + 3 - length :]}"


def reason_key(reason: str) -> str:
    """Return the first line without what differs between jobs, such as numbers and host names."""
    lines = reason.strip().splitlines()
    return re.sub(r"\S*\d\S*", "#", lines[0]) if lines else ""
