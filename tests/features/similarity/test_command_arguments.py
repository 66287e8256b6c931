"""What ``raysm similarity`` takes."""

import numpy as np
import pytest

from tests.support import commands


@pytest.fixture
def request_of(tmp_path, home):
    """Return the request that a command line asks for, with a matrix ``m.npy`` at hand."""
    np.save(tmp_path / "m.npy", np.eye(3, dtype=np.float32))

    def build(*argv):
        return commands.request_of(
            *(str(tmp_path / text) if text == "m.npy" else text for text in argv)
        )

    return build


@pytest.mark.parametrize(
    "kept", [["--top-k", "2"], ["--threshold", "0.5"], ["--full"]], ids=lambda kept: kept[0]
)
def test_queries_may_look_into_a_matrix_that_is_spread_and_may_be_spread_themselves(
    request_of, kept
):
    argv = ("similarity", "m.npy", *kept, "--queries", "m.npy", "--sharded", "--instances", "2")
    assert {name: channel.distribution for name, channel in request_of(*argv).inputs.items()} == {
        "matrix": "ShardedByS3Key",
        "queries": "FullyReplicated",
    }
    both = request_of(*argv, "--set", "inputs.queries.distribution=ShardedByS3Key")
    assert both.inputs["queries"].distribution == "ShardedByS3Key"


def test_columns_are_chosen_by_repeated_flags_and_by_commas(request_of, tmp_path):
    (tmp_path / "m.csv").write_text('file,row,"a,b",c,d\nx,0,1,2,3\ny,1,4,5,6\n')
    command = (
        "similarity",
        str(tmp_path / "m.csv"),
        "--top-k",
        "1",
        "--id-column",
        "file",
        "--id-column",
        "row",
    )
    workload = request_of(*command, "--columns", '"a,b",c', "--columns", "d").workload
    assert (workload.id_columns, workload.columns) == (("file", "row"), ("a,b", "c", "d"))
    assert request_of(*command, "--exclude-columns", "c,d").workload.exclude_columns == ("c", "d")
    (tmp_path / "m.csv").write_text(",a,b\nx,0,1\ny,1,4\n")
    command = ("similarity", str(tmp_path / "m.csv"), "--top-k", "1")
    assert request_of(*command, "--exclude-columns", "").workload.exclude_columns == ("",)
    assert request_of(*command, "--set", "workload.id_column=").workload.id_column == ""


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--top-k --threshold --full"),
        (["--top-k", "many"], "--top-k: invalid int value: 'many'"),
        (["--topk", "5"], "--topk 5; did you mean --top-k?\n"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_wrong(argv, message, capsys):
    assert message in commands.refusal(capsys, "similarity", "m.npy", *argv)
