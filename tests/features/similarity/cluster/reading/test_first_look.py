"""What is seen of a matrix before a job is sent: its headers, and its first rows."""

import gzip

import numpy as np
import pytest

from raysm.core.client.submit import prepare
from raysm.core.request import Cluster, Input, Local
from raysm.errors import InvalidInput
from raysm.features.similarity.request import Similarity
from tests.support.sagemaker import fake_aws


@pytest.fixture
def refusal(tmp_path):
    """Return what ``raysm.submit`` says of a matrix, None where it would send it."""

    def ask(workload=None, target=None, **inputs):
        try:
            prepare(
                workload or Similarity(top_k=1),
                on=target or Local(home=str(tmp_path / "home")),
                cluster=Cluster("ml.m5.large") if target else None,
                inputs=inputs,
            )
        except InvalidInput as error:
            return str(error)
        return None

    return ask


def test_more_neighbors_than_rows_are_refused_by_the_python_call_too(refusal, tmp_path):
    np.save(tmp_path / "m.npy", np.ones((5000, 2), dtype=np.float32))
    said = refusal(Similarity(top_k=5000), matrix=tmp_path / "m.npy")
    assert f"{tmp_path}/m.npy has 5,000 rows" in said
    assert "4,999" in said
    assert refusal(Similarity(top_k=4999), matrix=(tmp_path / "m.npy").as_uri()) is None
    assert "has 5,000 rows" in refusal(
        Similarity(top_k=5000), matrix=Input(str(tmp_path / "m.npy"), distribution="ShardedByS3Key")
    )


def test_it_is_refused_for_aws_before_anything_is_uploaded_and_what_lies_there_is_not_looked_at(
    tmp_path, refusal
):
    (tmp_path / "m.csv").write_text("a,b\n")
    with fake_aws() as fake:
        assert "m.csv" in refusal(target=fake.service, matrix=tmp_path / "m.csv")
        assert fake.s3.calls == []
        assert refusal(target=fake.service, matrix="s3://b/m.csv") is None


def test_queries_are_looked_at_beside_the_matrix(refusal, tmp_path):
    np.save(tmp_path / "m.npy", np.ones((3, 2)))
    np.save(tmp_path / "q.npy", np.ones((1, 5)))
    assert "q.npy has 5 columns" in refusal(matrix=tmp_path / "m.npy", queries=tmp_path / "q.npy")
    np.save(tmp_path / "q.npy", np.array([[1, np.nan]]))
    assert "row 0 of q.npy" in refusal(matrix=tmp_path / "m.npy", queries=tmp_path / "q.npy")
    assert "ask for at most 3" in refusal(
        Similarity(top_k=4), matrix=tmp_path / "m.npy", queries="s3://b/q.npy"
    )
    (tmp_path / "m.csv").write_text("a,b\n1,5\n3,4\n")
    assert "m.csv has 2 rows; ask for at most 1" in refusal(
        Similarity(top_k=2), matrix=tmp_path / "m.csv"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "m.csv .*no rows"),
        (
            "name,x,color\none,1,red\ntwo,2,blue\n",
            "'name': .*line 2: 'one'.*'color'",
        ),
        ("a,b\n1,2\n3,nan\n", "row 1 of m.csv .*NaN"),
        ("a,b\n1,2\n3,\n", "'b', line 3: .*missing"),
        ("a,b\n1,2\n", None),
    ],
)
def test_the_first_lines_of_a_csv_are_read(refusal, tmp_path, text, message):
    (tmp_path / "m.csv").write_text(text)
    (tmp_path / "m.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("m.csv", "m.csv.gz"):
        said = refusal(Similarity(threshold=0.5), matrix=tmp_path / name)
        if message is None:
            assert said is None
        else:
            with pytest.raises(InvalidInput, match=message.replace("m.csv", name)):
                raise InvalidInput(said)


@pytest.mark.parametrize(("dtype", "order"), [("<f8", "C"), (">f4", "F")])
def test_nan_in_the_first_rows_of_an_array_is_refused(refusal, tmp_path, dtype, order):
    rows = np.ones((6, 4), dtype=dtype, order=order)
    rows[3, 2] = np.nan
    np.save(tmp_path / "m.npy", rows)
    assert "row 3 of m.npy" in refusal(matrix=tmp_path / "m.npy")


def test_queries_may_lack_a_column_that_is_excluded_from_the_matrix(refusal, tmp_path):
    (tmp_path / "m.csv").write_text("label,a,b\nx,1,2\ny,3,4\n")
    (tmp_path / "q.csv").write_text("a,b\n1,2\n")
    workload = Similarity(top_k=1, exclude_columns=["label"])
    assert refusal(workload, matrix=tmp_path / "m.csv", queries=tmp_path / "q.csv") is None
    assert "m.csv has no column 'labels'" in refusal(
        Similarity(top_k=1, exclude_columns="labels"),
        matrix=tmp_path / "m.csv",
        queries=tmp_path / "q.csv",
    )
