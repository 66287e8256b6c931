"""A step in its job, with stand-ins for its flow: here no Metaflow is needed."""

import pickle

import cloudpickle
import pytest

from raysm.features.metaflow.cluster.step import Sent, run_step


def sent(step="train", **artifacts):
    pickles = {name: cloudpickle.dumps(value) for name, value in artifacts.items()}
    return Sent(step=step, artifacts=pickles, fixed=("input", "index"), steps=("end",))


def left(returned):
    return {name: pickle.loads(content) for name, content in returned.artifacts.items()}


def test_artifacts_that_are_new_or_have_changed_come_back():
    def step(self):
        self.new = self.base + self.input
        self.rows.append(3)

    returned = run_step(step, sent(base=1, input=2, rows=[1, 2]), None)
    assert left(returned) == {"new": 3, "rows": [1, 2, 3]}


def test_the_call_of_next_comes_back_with_names_of_steps():
    def step(self):
        self.next({True: self.end}, condition="done")

    returned = run_step(step, sent(done=True), None)
    assert returned.next_args == ({True: ("end",)},)
    assert returned.next_kwargs == {"condition": "done"}


def test_inputs_of_a_join_are_found_by_number_in_a_loop_and_by_name():
    def join(self, inputs):
        self.found = [inputs[1].loss, [each.loss for each in inputs], inputs.a.loss]

    inputs = [sent("a", loss=1), sent("b", loss=2)]
    assert left(run_step(join, sent("join"), inputs)) == {"found": [2, [1, 2], 1]}


def test_a_method_of_the_flow_reads_and_writes_its_artifacts():
    def step(self):
        self.double("rows")

    def double(self, name):
        self.rows = 2 * getattr(self, name)

    call = Sent(
        step="train", artifacts={"rows": cloudpickle.dumps(4)}, functions={"double": double}
    )
    assert left(run_step(step, call, None)) == {"rows": 8}


def test_an_artifact_that_was_not_sent_is_an_error_that_names_it():
    def step(self):
        return getattr(self, "".join(["mo", "del"]))

    with pytest.raises(AttributeError, match="'model'"):
        run_step(step, sent(), None)
