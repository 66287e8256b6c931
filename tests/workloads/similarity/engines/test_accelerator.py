import pytest

from raysm.errors import InvalidRequest
from raysm.workloads.similarity.engines.choice import CUDA, Accelerator
from raysm.workloads.similarity.engines.plain import PlainEngine
from raysm.workloads.similarity.kernels.build import Unavailable


def without(error):
    def make(columns):
        raise error

    return Accelerator(name="abacus", make=make)


def test_it_is_asked_for_by_its_whole_name_in_any_case():
    assert [word for word in ("cuda", "CUDA", "Cuda") if not CUDA.is_meant_by(word)] == []
    assert [word for word in ("a", "cud", "float32", "", None) if CUDA.is_meant_by(word)] == []


def test_one_that_can_be_had_is_made_for_the_number_of_columns_and_nothing_is_against_it():
    asked = []
    abacus = Accelerator(name="abacus", make=lambda columns: asked.append(columns) or PlainEngine(""))
    assert abacus.engine(7).name == "float32 NumPy"
    assert abacus.why_not_here(9) == ""
    assert asked == [7, 9]


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (Unavailable("the beads are gone"), "the beads are gone", "'abacus' cannot be had here: the beads are gone"),
        (ImportError("no", name="beads"), "beads is missing", "'abacus' needs beads, which is missing here"),
        (ImportError("no"), "torch is missing", "'abacus' needs torch, which is missing here"),
    ],
)
def test_one_that_cannot_be_had_says_why(error, reason, message):
    assert without(error).why_not_here(4) == reason
    with pytest.raises(InvalidRequest, match=message):
        without(error).engine(4)
