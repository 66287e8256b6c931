"""What is of the wrong type is refused at once, with what to write instead: types are only hints to Python."""

import pytest

import raysm
from raysm.testing import FakeSageMaker


@pytest.fixture
def submit(tmp_path):
    (tmp_path / "s.py").write_text("pass")
    fake = FakeSageMaker(tmp_path / "home")

    def send(workload=None, **options):
        try:
            return raysm.submit(workload or raysm.Script(str(tmp_path / "s.py")), **({"on": fake} | options))
        finally:
            send.submitted = fake.submitted

    return send


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": 2}, r"cluster must be raysm\.Cluster"),
        ({"on": "aws"}, r"on must be raysm\.AWS"),
        ({"inputs": "small.npy"}, "inputs must be channels by name"),
        ({"inputs": {"matrix": [[1, 2]]}}, "got a list; save the data to a file"),
        ({"requirements": "scikit-learn"}, r"write requirements=\['scikit-learn'\]"),
        ({"kind": "procesing"}, "'training', 'processing', got 'procesing'"),
        ({"environment": {"A": 1}}, r"environment\.A: expected text, got 1"),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_before_anything_is_sent(submit, options, message):
    with pytest.raises(ValueError, match=message):
        submit(**options)
    assert submit.submitted == []


def test_arguments_of_a_script_are_texts_and_numbers_among_them_become_such():
    assert raysm.Script("s.py", args=["--epochs", 10]).args == ("--epochs", "10")
    with pytest.raises(ValueError, match=r"give args=\['--epochs', '10'\]"):
        raysm.Script("s.py", args="--epochs 10")


@pytest.mark.parametrize("fields", [{"top_k": "x"}, {"top_k": 1.5}, {"threshold": "high"}, {"top_k": True}])
def test_a_similarity_of_something_else_than_numbers_is_refused(fields):
    with pytest.raises(ValueError, match="must be a number"):
        raysm.Similarity(**fields)


def test_the_decorator_works_without_parentheses_too(tmp_path):
    @raysm.remote
    def double(x):
        return 2 * x

    assert double(3) == 6
    assert "double" in repr(double)
    assert double.options(on=FakeSageMaker(tmp_path)).submit(4).result(timeout=10) == 8
