"""Names that a package does not promise: found, missed, of another form, and all of them as a checklist."""

import sys
import types
from typing import ClassVar

import pytest

from raysm.contract import internals
from raysm.contract.internals import Library, check_all, gaps_of
from raysm.errors import MissingDependency

LIBRARY = Library(title="Pytest", distribution="pytest", user="this test", remedy="install another")


class Internal(internals.Internal):
    library: ClassVar[Library] = LIBRARY


@pytest.fixture
def module():
    stand_in = types.ModuleType("stand_in")
    stand_in.Store = type("Store", (), {"keep": lambda self: "kept"})
    sys.modules[stand_in.__name__] = stand_in
    yield stand_in
    del sys.modules[stand_in.__name__]


def internal(name, **more):
    return Internal(module="stand_in", name=name, purpose="keep things", **more)


def test_a_name_is_found_with_the_dots_within(module):
    assert internal("Store.keep").find() is module.Store.keep
    assert internal("", fits=bool).find() is module


@pytest.mark.parametrize(
    ("missing", "gap"),
    [
        (internal("Shop"), "no stand_in.Shop"),
        (internal("Store.drop"), "no stand_in.Store.drop"),
        (Internal(module="stand_in.nowhere", name="x", purpose="be"), "no stand_in.nowhere.x"),
        (internal("Store", fits=lambda store: False), "another stand_in.Store than the one that is known"),
        (
            internal("Store", fits=lambda store: store.gone),
            "another stand_in.Store than the one that is known (AttributeError: type object 'Store' has no attribute "
            "'gone')",
        ),
    ],
)
def test_what_is_missing_is_told_in_words(module, missing, gap):
    assert missing.gap() == gap


def test_a_missing_name_is_an_error_with_the_version_the_purpose_and_the_remedy(module):
    with pytest.raises(MissingDependency) as raised:
        internal("Shop").find()
    assert str(raised.value) == (
        f"Pytest {pytest.__version__} has no stand_in.Shop, which this test needs to keep things; install another"
    )


def test_a_module_that_fails_while_it_is_imported_is_a_gap_with_its_reason(tmp_path):
    (tmp_path / "fails_on_import.py").write_text("raise RuntimeError('no GPU')\n")
    sys.path.insert(0, str(tmp_path))
    try:
        gap = Internal(module="fails_on_import", name="x", purpose="be").gap()
    finally:
        sys.path.remove(str(tmp_path))
    assert gap == "no fails_on_import.x (RuntimeError: no GPU)"


def test_the_checklist_says_what_each_gap_costs_and_counts_them(module, capsys):
    entries = [internal("Store"), internal("Shop"), internal("Shelf", is_needed=False)]
    assert check_all(LIBRARY, entries) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"Pytest {pytest.__version__}",
        "ok      stand_in.Store",
        "MISSING stand_in.Shop",
        "        no stand_in.Shop; this test cannot keep things",
        "MISSING stand_in.Shelf",
        "        no stand_in.Shelf; left out: keep things",
        "1 of 3 are there",
    ]
    assert list(gaps_of(entries)) == entries[1:]


def test_a_checklist_without_a_gap_is_a_success(module, capsys):
    assert check_all(LIBRARY, [internal("Store")]) == 0


def test_a_library_that_is_not_installed_has_no_version():
    library = Library(title="None", distribution="no-such-distribution-at-all", user="nobody", remedy="none")
    assert library.version == "(not installed)"
