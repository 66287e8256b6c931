"""Methods that show what they return where they are printed."""

from raysm.client.printable import printable


class Thing:
    @printable
    def values(self, *names: str) -> list[str]:
        """Return names."""
        return [*names, "all"]

    @printable
    def broken(self) -> None:
        """Fail."""
        raise ValueError("away")


def test_it_is_called_as_any_other_method():
    assert Thing().values("a") == ["a", "all"]
    assert Thing.values(Thing(), "a") == ["a", "all"]
    assert Thing.values.__doc__ == Thing().values.__doc__ == "Return names."
    assert Thing().values.__name__ == "values"


def test_printed_without_being_called_it_shows_what_it_would_return():
    assert str(Thing().values) == repr(Thing().values) == "['all']"


def test_what_cannot_be_shown_is_said_and_not_raised():
    assert repr(Thing().broken) == "<Thing.broken() cannot be shown: away>"
