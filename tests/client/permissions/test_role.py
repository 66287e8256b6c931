"""What the role may do, and who takes it on."""

import inspect
import re

from raysm.client.permissions.role import ROLE, trust
from raysm.contract import mirror


def test_the_trust_policy_lets_sagemaker_take_the_role_on():
    assert trust()["Statement"][0]["Action"] == "sts:AssumeRole"


def test_the_role_may_do_in_mlflow_what_the_copy_of_the_metrics_calls_and_nothing_else():
    """By the calls of MLflow's client that stand in the mirror."""
    calls = set(re.findall(r"self\._client\.(\w+)\(", inspect.getsource(mirror)))
    # Its client has a method of its own for the end of a run, which is an update.
    actions = {
        "".join(word.title() for word in call.replace("set_terminated", "update_run").split("_")) for call in calls
    }
    (grant,) = (grant for grant in ROLE if grant.purpose == "Tracking")
    assert {action.partition(":")[2] for action in grant.actions} == actions
    assert len(actions) > 5
