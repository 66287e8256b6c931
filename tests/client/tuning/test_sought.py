"""What a tuning job looks for, by its sweep and by what Describe answers."""

import pytest

import raysm
from raysm.client.tuning.handle import described, of_sweep
from raysm.errors import InvalidRequest


def test_of_a_sweep_values_have_the_types_of_its_space():
    sweep = raysm.Sweep("train.py", space={"depth": raysm.choice(["1", None])}, metric="loss", mode="max").workload()
    sought = of_sweep(sweep)
    assert (sought.metric, sought.mode) == ("loss", "max")
    assert [sought.read["depth"](text) for text in ('"1"', "null")] == ["1", None]


def test_of_what_describe_answers_a_category_is_what_its_text_looks_like():
    objective = {"Type": "Minimize", "MetricName": "loss"}
    ranges = {"CategoricalParameterRanges": [{"Name": "x"}]}
    config = {"HyperParameterTuningJobObjective": objective, "ParameterRanges": ranges}
    sought = described({"HyperParameterTuningJobConfig": config})
    assert (sought.metric, sought.mode) == ("loss", "min")
    assert [sought.read["x"](text) for text in ("1", "null", "adam", "[1]")] == [1, None, "adam", "[1]"]


@pytest.mark.parametrize("value", ["adam", "1", 1, 1.0, "true", True, "null", None, '"1"', "[1]", "NaN", "", "1e5"])
def test_without_its_sweep_a_choice_is_read_as_what_it_was_a_text_or_a_number(value):
    kind, choices = raysm.choice([value]).tuned()
    config = {
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ParameterRanges": {kind: [{"Name": "x", **choices}]},
    }
    read = described({"HyperParameterTuningJobConfig": config}).read["x"](choices["Values"][0])
    assert (read, type(read)) == (value, type(value))


def test_a_tuning_job_of_several_definitions_is_not_read():
    with pytest.raises(InvalidRequest, match="tuned has several definitions"):
        described({"HyperParameterTuningJobName": "tuned", "HyperParameterTuningJobConfig": {}})
