"""What jobs on this machine need, and what is said where it is not there."""

from raysm.cli.this_machine import local_checks, train_check
from raysm.client.doctor.case import State


def test_this_machine_has_what_local_jobs_need():
    findings = {finding.name: finding for finding in local_checks()}
    assert findings["ray"].state is State.GOOD
    assert {"server", "namespace", "docker"} <= set(findings)
    assert all(finding.state is State.GOOD or not finding.needed for finding in findings.values())


def test_this_machine_can_import_ray_train():
    assert train_check().state is State.GOOD


def test_a_ray_train_that_cannot_be_imported_is_said_with_what_to_install():
    def load():
        raise ImportError("Can't import ray.train") from ModuleNotFoundError("No module named 'pandas'")

    finding = train_check(load)
    assert (finding.state, finding.needed) == (State.BAD, False)
    assert "No module named 'pandas'" in finding.text
    assert finding.remedy == "python3 -m pip install 'raysm[train]'"
