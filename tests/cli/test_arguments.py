import pytest

from raysm.cli.arguments import parse, request_of
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, Script, Similarity


def request(*argv):
    return request_of(parse(argv))


def test_a_similarity_is_asked_for_as_the_readme_says():
    asked = request("similarity", "m.npy", "--top-k", "10", "--instances", "2", "--output", "out/")
    assert asked.workload == Similarity(top_k=10)
    assert asked.cluster == Cluster(count=2)
    assert asked.inputs == {"matrix": Input("m.npy")}


def test_a_scripts_arguments_pass_verbatim_also_those_that_look_like_ours():
    asked = request("run", "a.py", "--instances", "3", "--", "--any", "--args", "--", "--instances", "9")
    assert asked.workload == Script("a.py", args=("--any", "--args", "--", "--instances", "9"))
    assert asked.cluster.count == 3


def test_channels_are_given_by_name():
    asked = request("run", "a.py", "--input", "train=data/x=y", "--input", "test=t")
    assert asked.inputs == {"train": Input("data/x=y"), "test": Input("t")}


def test_every_job_has_a_name_of_its_own_unless_told():
    assert request("run", "a.py").name != request("run", "a.py").name
    assert request("run", "a.py", "--name", "mine").name == "mine"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "COMMAND"),
        (["dance"], "invalid choice: 'dance'"),
        (["similarity", "m.npy"], "one of the arguments --top-k --threshold --full is required"),
        (["similarity", "m.npy", "--top-k", "3", "--full"], "not allowed with argument"),
        (["similarity", "m.npy", "--top-k", "many"], "invalid int value: 'many'"),
        (["run", "a.py", "--epochs", "10"], "the arguments of a script go behind --"),
    ],
)
def test_wrong_arguments_end_with_2_and_say_what_is_wrong(argv, message, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(argv)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_arguments_behind_the_dashes_are_refused_where_there_is_no_script():
    with pytest.raises(SystemExit) as caught:
        parse(["similarity", "m.npy", "--full", "--", "x"])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run", "a.py", "--instances", "0"], "count must be at least 1, got 0"),
        (["run", "a.py", "--input", "train"], "--input takes NAME=PATH, got 'train'"),
        (["run", "a.py", "--input", "a=x", "--input", "a=y"], "channel 'a' is given twice"),
        (["similarity", "m.npy", "--top-k", "0"], "top_k must be at least 1, got 0"),
        (["similarity", "m.npy", "--threshold", "nan"], "-1 to 1"),
        (["similarity", "m.npy", "--top-k", "1", "--dtype", "float16"], "dtype belongs to full"),
    ],
)
def test_a_request_that_cannot_be_is_refused_with_the_value(argv, message):
    with pytest.raises(InvalidRequest, match=message):
        request(*argv)
