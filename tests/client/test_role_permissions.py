"""What the job's role has to be allowed."""

import inspect
import re

from raysm.client.doctor.names import placeholders
from raysm.client.grants import policy
from raysm.client.role_permissions import ROLE
from raysm.contract import mirror

NAMES = placeholders()


def test_a_statement_falls_away_with_what_it_is_about():
    bare = {
        name: () if name in ("output_key", "volume_key", "subnet", "remote_debug") else NAMES[name] for name in NAMES
    }
    sids = {item["Sid"] for item in policy(ROLE, bare)["Statement"]}
    assert {"OutputKey", "VolumeKey", "Network", "Session"}.isdisjoint(sids)
    assert {"Objects", "Image", "Logs"} <= sids


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
