"""A target that this module alone adds: a class that answers for itself, and its connection."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from raysm.client.plan import plan
from raysm.client.service import connect
from raysm.client.targets.connection import CONNECTIONS, connection_to
from raysm.client.targets.local import LocalConnection
from raysm.errors import InvalidRequest
from raysm.request import AWS, JobRequest, Local, Script


@dataclass(frozen=True, kw_only=True)
class Elsewhere(Local):
    """The embedded SageMaker of another machine, which reads no files of this one."""

    kind: ClassVar[str] = "elsewhere"
    takes_files: ClassVar[bool] = False

    def describe(self):
        return "elsewhere"


class ElsewhereConnection(LocalConnection):
    """Where its results lie is in S3."""

    def data_root(self, bucket_root):
        return bucket_root


@pytest.fixture
def elsewhere(tmp_path):
    CONNECTIONS["elsewhere"] = f"{__name__}:ElsewhereConnection"
    yield Elsewhere(home=str(tmp_path))
    del CONNECTIONS["elsewhere"]


def test_a_target_is_connected_to_and_planned_for_by_what_it_answers(elsewhere):
    service = connect(elsewhere)
    assert service.places.outputs("p") == "s3://raysm-local/raysm/p"
    request = JobRequest(name="job", workload=Script("x.py"))
    sent = plan(request, target=elsewhere, places=service.places)
    assert sent.outputs == "s3://raysm-local/raysm/default/job/output"
    with pytest.raises(InvalidRequest, match="output_uri"):
        plan(
            JobRequest(name="job", workload=Script("x.py"), output_uri="file:///tmp/x"),
            target=elsewhere,
            places=service.places,
        )


@pytest.mark.parametrize("target", ["aws", AWS, 3, Elsewhere()])
def test_what_is_no_target_is_refused(target):
    with pytest.raises(InvalidRequest, match=r"on must be raysm.AWS\(role=…\) or raysm.Local\(\)"):
        connection_to(target)
