"""A namespace in which cells run."""

import json
import pickle
import sys

import pytest

from raysm.contract.session import CELL, PULL, PUSH, CallRequest
from raysm.workloads.session.namespace import Namespace, shown


def cell(namespace, source, **fields):
    return namespace.do(CallRequest(kind=CELL, name="a cell", **fields), source.encode())


def test_cells_see_what_earlier_ones_left_and_show_their_last_value():
    namespace = Namespace()
    assert dict(cell(namespace, "x = 20").shown) == {}
    assert cell(namespace, "x + 1").shown["text/plain"] == "21"
    assert namespace.names["_"] == 21


def test_two_namespaces_know_nothing_of_each_other():
    one, other = Namespace(), Namespace()
    cell(one, "x = 1")
    with pytest.raises(NameError):
        cell(other, "x")


def test_values_go_in_and_out_by_their_names():
    namespace = Namespace()
    namespace.do(CallRequest(kind=PUSH, name="push"), pickle.dumps((dict, (), {"a": 1, "b": [2]})))
    pulled = namespace.do(CallRequest(kind=PULL, name="pull"), json.dumps(["b", "a"]).encode())
    assert pickle.loads(pulled.pickled) == {"b": [2], "a": 1}


@pytest.mark.parametrize(
    ("host", "words"),
    [("", "the session has no 'model'"), ("algo-2", "algo-2's namespace in the session has no 'model'")],
)
def test_a_name_that_is_not_there_is_named_with_its_instance(host, words):
    with pytest.raises(NameError, match=words):
        Namespace().do(CallRequest(kind=PULL, name="pull", host=host), b'["model"]')


def test_it_stands_for_the_program_for_as_long_as_is_wanted():
    namespace, main, argv = Namespace(), sys.modules["__main__"], sys.argv[:]
    with namespace.as_main():
        cell(namespace, "class Model: pass")
        cell(namespace, "pass", filename="train.py", args=("--lr", "1"))
        assert sys.argv == ["train.py", "--lr", "1"]
        # As of a program: it travels by value.
        assert namespace.names["Model"].__module__ == "__main__"
        assert sys.modules["__main__"].Model is namespace.names["Model"]
    assert (sys.modules["__main__"], sys.argv) == (main, argv)


class Table:
    def _repr_html_(self):
        return "<table></table>"

    def _repr_png_(self):
        return b"\x89PNG"

    def _repr_markdown_(self):
        raise ValueError("its own fault")

    def __repr__(self):
        return "a table"


def test_a_value_is_shown_in_every_form_that_it_has():
    assert shown(Table()) == {"text/plain": "a table", "text/html": "<table></table>", "image/png": "iVBORw=="}


@pytest.mark.parametrize("value", [1, "text", Table])
def test_what_has_no_form_of_its_own_is_text(value):
    assert shown(value) == {"text/plain": repr(value)}
