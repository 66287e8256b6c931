"""What raysm takes for granted of SageMaker, and what the first hour says of it: a question a function, a line each.

What flows in are the outcomes of the trials by name, what flows out are questions with their answers. What no trial
could show is said so.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from raysm.client.first_job.entering import TOPIC
from raysm.client.first_job.observing import Observation
from raysm.client.first_job.probe import SAME
from raysm.client.first_job.running import Outcome

__all__ = ["NOT_ASKED", "QUESTIONS", "Answer", "Question", "answers", "as_markdown"]

Outcomes = Mapping[str, Outcome]

NOT_ASKED = (
    "Not asked, since it takes instances of more than a dollar: whether the hosts of GPU types have the driver that "
    "CUDA 13 needs, and whether a training plan may stand beside instance groups or a warm pool."
)
"""What raysm takes for granted besides."""

NOTHING = "not seen: no instance said anything of it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One thing that no documentation says."""

    name: str
    """In a few words."""
    assumed: str
    """What raysm is built for."""
    trial: str
    """The trial that shows it."""
    answer: Callable[[Outcome], str]
    """Says what was seen; nothing where nothing was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What was seen of it."""

    question: Question
    """Which one."""
    text: str
    """What was seen."""


def answers(outcomes: Outcomes) -> Iterator[Answer]:
    """Yield an answer to every question."""
    for question in QUESTIONS:
        outcome = outcomes.get(question.trial)
        if outcome is None:
            text = f"not seen: the trial {question.trial} was left out"
        # A trial that could not be sent shows nothing, whatever its log may have.
        elif outcome.obstacle:
            text = f"not seen: {outcome.obstacle}"
        else:
            text = question.answer(outcome) or NOTHING
        yield Answer(question=question, text=text)


def as_markdown(outcomes: Mapping[str, Outcome]) -> str:
    """Return trials and answers as a page."""
    parts = ["# The first hour", "| trial | has to end | ended |\n| --- | --- | --- |"]
    for name, outcome in outcomes.items():
        status = "never sent" if outcome.description is None else outcome.description.status
        parts[-1] += (
            f"\n| {name}: {outcome.trial.purpose} | {outcome.trial.ends} | {_cell(outcome.obstacle or status)} |"
        )
    parts.append("| taken for granted | seen |\n| --- | --- |")
    for answer in answers(outcomes):
        parts[-1] += f"\n| {answer.question.name}: {_cell(answer.question.assumed)} | {_cell(answer.text)} |"
    return "\n\n".join([*parts, NOT_ASKED]) + "\n"


def _cell(text: str) -> str:
    # Reasons and obstacles are what AWS, or the job itself, wrote: a bar or a line break would end the cell.
    return text.replace("|", "\\|").replace("\n", " ")


def _scratch(outcome: Outcome) -> str:
    return _each(outcome.said("disks"), _disks)


def _disks(observation: Observation) -> str:
    df = observation.values["df"]
    shown = {name: df.get(name) for name in ("/", "/tmp", "BASE/", "BASE/input/data", "BASE/model", "BASE/checkpoints")}
    disks = [(name, place) for name, place in shown.items() if place]
    # By the device's number: what has the same one lies on the same volume, which is what is asked.
    return ", ".join(f"{name} on device {place['device']} with {place['free'] >> 30} GiB free" for name, place in disks)


def _mapping(outcome: Outcome) -> str:
    return _each(
        outcome.said("mapping"),
        lambda item: (
            ", ".join(f"{name}: {text}" for name, text in item.values["files"].items()) or "no file in its channel"
        ),
    )


def _order(outcome: Outcome) -> str:
    # By the instances' own clocks: a line of the log has the time at which the service took it.
    ended = [item.host for item in sorted(outcome.said("left"), key=lambda item: item.values["at"])]
    stayed = {name: text.strip() for name, text in outcome.objects.items() if name.endswith(SAME)}
    if not stayed:
        return ""
    shown = ", ".join(f"{name} is of {host}" for name, host in stayed.items())
    return f"the instances ended in the order {', '.join(ended)}; {shown}"


def _interfaces(outcome: Outcome) -> str:
    names = {item.host: item.values["interfaces"] for item in outcome.said("network")}
    # None of a file that the instance has, and could not read.
    configs = {item.host: item.values["files"].get("resourceconfig.json") or "" for item in outcome.said("config")}
    return "; ".join(
        f"{host}: the resource config {'names' if 'network_interface_name' in configs.get(host, '') else 'names no'} "
        f"interface; there are {', '.join(interfaces)}"
        for host, interfaces in names.items()
    )


def _isolation(outcome: Outcome) -> str:
    return _each(
        outcome.said("met"),
        lambda item: (
            "reached" if item.values["reached"] else f"not reached ({item.values.get('obstacle', 'nobody came')})"
        ),
    )


def _after_kill(outcome: Outcome) -> str:
    # They come in the order of their times, so that of each instance the last one stays.
    logged = {item.host: item.values["tick"] for item in outcome.said("tick")}
    uploaded = {name: text.strip() for name, text in outcome.objects.items() if name.endswith("-tick.txt")}
    if not logged:
        return ""
    shown = ", ".join(f"{name} says {tick}" for name, tick in uploaded.items()) or "nothing is there"
    last = ", ".join(f"{host} {tick}" for host, tick in logged.items())
    return f"the last second that was logged: {last}; in S3: {shown}"


def _after_failure(outcome: Outcome) -> str:
    names = sorted(name for name in outcome.objects if name.startswith("output/"))
    # That nothing is there answers this one: it is what raysm reckons with.
    return f"there are {', '.join(names)}" if names else "nothing is there"


def _reason(outcome: Outcome) -> str:
    answer = {} if outcome.description is None else outcome.description.answer
    return str(answer.get("FailureReason") or answer.get("ExitMessage") or "")


def _init(outcome: Outcome) -> str:
    # The probe made a blank of each NUL, of which one ends the last argument.
    return _each(outcome.said("init"), lambda item: str(item.values["cmdline"]).strip() or "cannot be read")


def _hostname(outcome: Outcome) -> str:
    return _each(outcome.said("system"), lambda item: str(item.values["hostname"]))


def _delay(outcome: Outcome) -> str:
    return "" if outcome.delay_s is None else f"the last line came {outcome.delay_s:.0f} s after it was written"


def _billed(outcome: Outcome) -> str:
    description = outcome.description
    if description is None or description.billable_s is None:
        return ""
    # Both are the service's own figures: what is billed may be less, by the spot discount.
    training_s = description.answer.get("TrainingTimeInSeconds")
    return f"{description.billable_s} s billed of {training_s} s of training"


def _entered(outcome: Outcome) -> str:
    return _each(
        outcome.said(TOPIC),
        lambda item: (
            f"it answered {item.values['answer']!r} after {item.values['seconds']} s"
            if item.values["reached"]
            else f"not reached ({item.values['obstacle']})"
        ),
    )


def _each(items: list[Observation], show: Callable[[Observation], str]) -> str:
    return "; ".join(f"{item.host}: {show(item)}" for item in items)


# Each names the trial that answers it: a trial without a question would be paid for nothing.
QUESTIONS = (
    Question(
        name="scratch",
        assumed="the volume that was asked for is at /tmp and the documented folders, / is a small overlay",
        trial="training",
        answer=_scratch,
    ),
    Question(
        name="FastFile",
        assumed="a file of a FastFile channel may refuse MAP_SHARED",
        trial="training",
        answer=_mapping,
    ),
    Question(
        name="order of uploads",
        assumed="of files of one name any instance's may stay",
        trial="outputs",
        answer=_order,
    ),
    Question(
        name="Processing's interfaces",
        assumed="the resource config of a Processing job names none",
        trial="processing",
        answer=_interfaces,
    ),
    Question(
        name="isolation in Processing",
        assumed="instances of an isolated Processing job may not reach each other",
        trial="isolated",
        answer=_isolation,
    ),
    Question(
        name="checkpoints after SIGKILL",
        assumed="what is written in the last seconds may be lost",
        trial="killed",
        answer=_after_kill,
    ),
    Question(
        name="output/data after a failure",
        assumed="it may not be there",
        trial="failing",
        answer=_after_failure,
    ),
    Question(
        name="reason of a failure",
        assumed="AlgorithmError: TEXT, exit code: N",
        trial="failing",
        answer=_reason,
    ),
    Question(name="PID 1", assumed="an init that forwards signals", trial="training", answer=_init),
    Question(name="host name", assumed="aws on every instance", trial="training", answer=_hostname),
    Question(name="lines of the log", assumed="they arrive within seconds", trial="training", answer=_delay),
    Question(
        name="tunnel",
        assumed="a session that raysm opens by itself reaches a port of the head, once remote debugging is switched on",
        trial="tunnel",
        answer=_entered,
    ),
    Question(
        name="spot",
        assumed="fewer seconds are billed than were trained",
        trial="spot",
        answer=_billed,
    ),
)
"""What is asked, the undocumented first."""
