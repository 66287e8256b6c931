"""What stands in the way of a job on AWS, before anything is sent.

What flows in is a case: a job as far as it is known, and the account that it is to run in. What flows out are findings,
good, bad with the remedy, or that a check could not look. A further check is a function that yields findings, and a
line below. Nothing of it was seen on AWS; the rules are AWS's documentation's.
"""

from collections.abc import Iterator
from dataclasses import replace

from raysm.client.doctor.account import look_at_credentials, look_at_endpoints, look_at_region, look_at_types
from raysm.client.doctor.capacity import look_at_quotas
from raysm.client.doctor.case import Case, Intent, intent_of
from raysm.client.doctor.finding import Check, Finding, State, carry_out, unknown
from raysm.client.doctor.image import look_at_image
from raysm.client.doctor.network import look_at_groups, look_at_subnets
from raysm.client.doctor.permitted import look_at_caller, look_at_role, look_at_role_policy
from raysm.client.doctor.storage import look_at_bucket, look_at_inputs, look_at_keys
from raysm.client.doctor.whole import look_at_plan, look_at_tunnel

__all__ = ["CHECKS", "CREDENTIALS", "Case", "Check", "Finding", "Intent", "State", "examine", "intent_of"]

# It asks AWS too, and yet must not be left out without credentials: it is what says that there are none.
CREDENTIALS = Check(name="credentials", look=look_at_credentials, asks=False)

CHECKS = (
    Check(name="region", look=look_at_region, asks=False),
    Check(name="endpoint", look=look_at_endpoints, asks=False),
    CREDENTIALS,
    Check(name="role", look=look_at_role),
    Check(name="role's rights", look=look_at_role_policy),
    Check(name="your rights", look=look_at_caller),
    Check(name="bucket", look=look_at_bucket),
    Check(name="inputs", look=look_at_inputs),
    Check(name="keys", look=look_at_keys),
    Check(name="image", look=look_at_image),
    Check(name="instance type", look=look_at_types, asks=False),
    Check(name="quota", look=look_at_quotas),
    Check(name="subnets", look=look_at_subnets),
    Check(name="groups", look=look_at_groups),
    Check(name="plan", look=look_at_plan),
    Check(name="tunnel", look=look_at_tunnel, asks=False),
)
"""All of them, in the order in which people mend things."""


def examine(case: Case) -> Iterator[Finding]:
    """Yield what all checks see, one after the other as they look."""
    has_credentials = True
    for check in CHECKS:
        if check.asks and not has_credentials:
            # Each would fail the same way once more.
            yield replace(unknown("could not look without credentials"), name=check.name)
            continue
        for finding in carry_out(check, case):
            if check is CREDENTIALS:
                has_credentials = finding.state is State.GOOD
            yield finding
