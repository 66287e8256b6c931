"""A batch inference as the user writes it: what it becomes, what travels with it, and what is refused."""

import pickle

import pytest

import raysm
from raysm.client.results.batch import Batch
from raysm.client.source.package import package_of
from raysm.errors import InvalidRequest


class Model:
    def __init__(self, weights, scale=2.0):
        self.weights, self.scale = weights, scale

    def __call__(self, batch):
        return {"y": batch["x"] * self.scale}


class NoModel:
    pass


def double(batch, factor=2):
    return {"y": batch["x"] * factor}


def test_a_class_travels_with_the_arguments_that_it_is_made_with():
    batch = raysm.Batch(Model, batch_size=32, arguments={"weights": "w.pt"}, keep=["id"])
    workload = batch.workload()
    assert (workload.name.endswith("Model"), workload.batch_size, workload.keep) == (True, 32, ("id",))
    assert workload.parameters == {"weights": "w.pt", "scale": 2.0}
    kind, args, kwargs = pickle.loads(package_of(batch).pickled)
    assert (kind.__name__, args, kwargs) == ("Model", (), {"weights": "w.pt"})


def test_a_function_is_told_apart_by_its_own_arguments_not_by_the_batch():
    assert Batch(double, batch_size=1, arguments={"factor": 3}).workload().parameters == {"factor": 3}
    assert Batch(double, batch_size=1).title() == "double"


@pytest.mark.parametrize(
    ("predictor", "arguments", "message"),
    [
        (Model, {}, "__init__ takes other arguments: missing a required argument: 'weights'"),
        (Model, {"weight": 1}, "__init__ takes other arguments"),
        (NoModel, {}, r"has no __call__\(self, batch\)"),
        (double, {"factors": 1}, "takes other arguments after the batch: got an unexpected keyword argument"),
        (Model("w"), {"x": 1}, "takes other arguments after the batch"),
        ("model.pt", {}, "the first argument is a class or a function, got 'model.pt'"),
    ],
)
def test_a_predictor_that_cannot_be_called_so_is_refused_before_anything_is_sent(predictor, arguments, message):
    with pytest.raises(InvalidRequest, match=message):
        Batch(predictor, batch_size=4, arguments=arguments)


def test_an_object_that_can_be_called_is_a_predictor_as_it_is():
    assert pickle.loads(Batch(Model("w"), batch_size=4).pickled())[0].weights == "w"


def test_an_option_with_a_typing_error_is_named():
    with pytest.raises(InvalidRequest, match="batchsize|keeps"):
        Batch(double, batch_size=4, keeps=["id"])


def test_what_does_not_pickle_is_named():
    with pytest.raises(InvalidRequest, match=r"cannot be pickled: weights is a generator"):
        Batch(Model, batch_size=4, arguments={"weights": (i for i in "ab")}).pickled()


def test_what_is_not_wrapped_is_told_how():
    with pytest.raises(InvalidRequest, match=r"wrap the predictor: raysm.submit\(raysm.Batch"):
        raysm.submit(Batch(double, batch_size=4).workload(), on=raysm.Local())


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"zip": "text"}, "the type of 'zip' is one of string, bool, int8, .*, got 'text'"),
        (["zip"], "types is a mapping of columns to types"),
    ],
)
def test_a_type_that_there_is_not_is_refused_before_anything_is_sent(types, message):
    with pytest.raises(InvalidRequest, match=message):
        Batch(double, batch_size=4, types=types)
