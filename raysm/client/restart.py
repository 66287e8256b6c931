"""The follow-up of a job that ran as long as it may: the same call under the next name, from the same checkpoints.

Pure. The follow-up is made of what the service says of the job, so that any process that watches it can send it; its
name follows from the first job's, so that of two that try, one is told that it is there already.
"""

import re
from collections.abc import Mapping
from typing import Any

from raysm.client.description import Description
from raysm.client.plan import Plan
from raysm.client.records import MAX_NAME
from raysm.contract.names import FIRST_TAG, MAX_RESTARTS_TAG, RESTART_TAG
from raysm.request import AWS, JobRequest, Local
from raysm.request.options import keys_taken_over

__all__ = ["follow_up", "is_follow_up", "names_until", "next_name"]

TAKEN_OVER = keys_taken_over(JobRequest, AWS, Local)
"""Of Describe's answer, what the follow-up is sent with: what the options became. Its tags come from elsewhere."""

FOLLOW_UP = re.compile(r"-r\d+$")
"""How the names of follow-up jobs end."""

READ_ONLY = ("SelectedInstanceType", "SelectedInstanceCount")
"""Of ResourceConfig, what Create refuses."""


def next_name(description: Description, tags: Mapping[str, str]) -> str | None:
    """Return the name of the job that goes on with this one; None where none does."""
    # Without a state the follow-up would begin anew, and run out of its time too.
    if not description.exceeded_runtime or "CheckpointConfig" not in description.answer:
        return None
    restart = _number(tags, RESTART_TAG) + 1
    if restart > _number(tags, MAX_RESTARTS_TAG):
        return None
    return _name_of(tags.get(FIRST_TAG, description.name), restart)


def is_follow_up(name: str) -> bool:
    """Whether ``name`` looks like a follow-up job's; only its tags say whether it is one."""
    return FOLLOW_UP.search(name) is not None


def names_until(name: str, tags: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the jobs from the first one to this one, of which these are the tags."""
    number = _number(tags, RESTART_TAG)
    if FIRST_TAG not in tags or number < 1:
        return (name,)
    first = tags[FIRST_TAG]
    return (first, *(_name_of(first, restart) for restart in range(1, number)), name)


def follow_up(description: Description, tags: Mapping[str, str]) -> Plan:
    """Return the call that goes on with a job of which ``next_name`` says that one may."""
    name = next_name(description, tags)
    assert name is not None
    call: dict[str, Any] = {key: description.answer[key] for key in sorted(TAKEN_OVER) if key in description.answer}
    call["ResourceConfig"] = {key: item for key, item in call["ResourceConfig"].items() if key not in READ_ONLY}
    own_tags = {RESTART_TAG: str(_number(tags, RESTART_TAG) + 1), FIRST_TAG: tags.get(FIRST_TAG, description.name)}
    # What AWS itself tagged a job with it shows, and refuses in a call.
    others = {key: item for key, item in tags.items() if not key.startswith("aws:")}
    all_tags = [{"Key": key, "Value": item} for key, item in {**others, **own_tags}.items()]
    return Plan(api=description.api, request={description.api.name_key: name, **call, "Tags": all_tags})


def _name_of(first: str, restart: int) -> str:
    suffix = f"-r{restart}"
    return first[: MAX_NAME - len(suffix)].rstrip("-") + suffix


def _number(tags: Mapping[str, str], key: str) -> int:
    text = tags.get(key, "0")
    # A tag may have been changed by whoever may tag the job.
    return int(text) if text.isdecimal() else 0
