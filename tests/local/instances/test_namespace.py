"""What instances as namespaces have of their own; what every kind of instance promises is tried in test_instances."""

import os
import sys
from pathlib import Path

import pytest

from raysm.contract.paths import DEFAULT_BASE
from raysm.errors import InvalidRequest
from raysm.local.instances.base import InstanceSpec
from raysm.local.instances.namespace import NamespaceSite
from raysm.local.instances.network import INTERFACE, MAX_INSTANCES
from tests.support import namespaces

PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def specs(folder, count, code="true"):
    made = []
    for number in range(1, count + 1):
        private = folder / f"algo-{number}"
        (private / "ml").mkdir(parents=True)
        log_fd = os.open(private / "log", os.O_WRONLY | os.O_CREAT)
        made.append(
            InstanceSpec(
                host=f"algo-{number}",
                base=private / "ml",
                private=private,
                command=("sh", "-c", code),
                variables={"PATH": PATH},
                log_fd=log_fd,
            )
        )
    return made


@pytest.fixture
def site():
    one = NamespaceSite()
    yield one
    one.close()


@pytest.fixture
def start(site, tmp_path):
    started = []

    def run(count, code="true"):
        started.extend(specs(tmp_path, count, code))
        return site.start(started)

    yield run
    for spec in started:
        os.close(spec.log_fd)


def test_what_this_machine_lacks_is_said_or_nothing():
    assert (NamespaceSite.missing() is None) == (namespaces.why_not() is None)


@pytest.mark.namespace
def test_each_instance_sees_its_own_folder_as_sagemakers_and_its_own_address_under_its_name(site, start, tmp_path):
    first, second = start(2, "cat /etc/hosts; touch /opt/ml/here; echo $$")
    assert site.base_inside(tmp_path) == DEFAULT_BASE
    assert site.interface == INTERFACE
    assert first.wait(60) == second.wait(60) == 0
    for number, instance in ((1, first), (2, second)):
        assert (tmp_path / f"algo-{number}" / "ml" / "here").exists()
        log = (tmp_path / f"algo-{number}" / "log").read_text()
        assert f"{instance.address} algo-{number}" in log
        # Numbers of its own: this machine's have got far beyond.
        assert int(log.splitlines()[-1]) < 10
    assert first.address != second.address


@pytest.mark.namespace
def test_more_instances_than_the_network_has_addresses_for_are_refused(start):
    with pytest.raises(InvalidRequest, match=f"at most {MAX_INSTANCES} instances of kind 'namespace'"):
        start(MAX_INSTANCES + 1)


@pytest.mark.namespace
def test_a_foreign_name_is_not_looked_up_anywhere(start, tmp_path):
    (instance,) = start(1, "cat /etc/resolv.conf")
    assert instance.wait(60) == 0
    assert "nameserver 127.0.0.1" in (tmp_path / "algo-1" / "log").read_text()
