import pytest

from raysm.errors import InvalidRequest
from raysm.workloads.nodes import Node
from raysm.workloads.similarity import run
from raysm.workloads.similarity.runs import Report


def node(host, gpus=0):
    return Node(host=host, node_id=host, address="", rank=0, instance_type="", cpus=4, gpus=gpus)


@pytest.fixture
def report():
    return Report(emit_event=lambda event: None)


def choose(report, forced, nodes, ask=None, against=""):
    return run.choose_engine(forced, against, 8, report, nodes, ask)


def answering(**answers):
    return lambda nodes, columns: [answers.get(node.host.replace("-", "_"), "") for node in nodes]


def test_gpus_alone_compute_and_the_instances_without_are_named(report, capsys):
    nodes = [node("algo-1"), node("algo-2", 4), node("algo-3")]
    assert choose(report, None, nodes, answering()) == "cuda"
    assert report.notes == ["the GPUs alone compute, not the instances that have none: algo-1, algo-3"]
    assert report.notes[0] in capsys.readouterr().err


def test_gpus_that_cannot_be_used_are_a_warning_and_the_cpus_compute(report, capsys):
    nodes = [node("algo-1", 1), node("algo-2", 1)]
    assert choose(report, None, nodes, answering(algo_2="torch is missing")) is None
    assert report.notes == ["warning: the GPUs are not used, the CPUs compute instead: on algo-2, torch is missing"]
    assert "warning" in capsys.readouterr().err


def test_gpus_that_are_not_there_are_an_error_only_if_they_are_asked_for(report):
    assert choose(report, None, [node("algo-1"), node("algo-2")]) is None
    assert report.notes == []
    with pytest.raises(InvalidRequest, match="no instance has a GPU"):
        choose(report, "cuda", [node("algo-1")])
    with pytest.raises(InvalidRequest, match="on algo-1, the driver is too old"):
        choose(report, "cuda", [node("algo-1", 1)], answering(algo_1="the driver is too old"))
