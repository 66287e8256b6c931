"""One value of a configuration file that somebody else wrote, asked for as what it should be.

What flows in are parsed JSON values, what flows out are values of the wanted type, or an ``InvalidConfig`` of one line
with the file, the place in it, what was expected there and what stands there.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from raysm.errors import InvalidConfig

__all__ = ["ConfigValue", "shown"]

T = TypeVar("T")

PRINTABLE = "a text of printable characters"


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value of a configuration file, with its place."""

    value: Any
    """As ``json.loads`` returned it; None too where the file has nothing there."""
    file: str
    """Where it was read, for people."""
    way: str = ""
    """The way to it in the file, ``instance_groups[0].hosts``; empty is the whole of it."""

    def refusal(self, expected: str) -> InvalidConfig:
        """Return the error that says what the value should have been."""
        where = f"{self.file}: {self.way}" if self.way else self.file
        return InvalidConfig(f"{where}: expected {expected}, got {shown(self.value)}")

    def expect(self, kind: type[T], expected: str) -> T:
        """Return the value, which must be a ``kind``; ``expected`` says for people what that is.

        Raises:
            InvalidConfig: It is something else; so do all methods that read.
        """
        # The one place that asks for a type, so that no answer forgets the file, the way and the value.
        if not isinstance(self.value, kind):
            raise self.refusal(expected)
        return self.value

    def members(self, expected: str = "a JSON object") -> dict[str, "ConfigValue"]:
        """Return the members of an object by their keys."""
        return {key: self._member(key, item) for key, item in self.expect(dict, expected).items()}

    def member(self, key: str, expected: str = "a JSON object") -> "ConfigValue":
        """Return one member of an object; its value is None where there is none."""
        return self._member(key, self.expect(dict, expected).get(key))

    def items(self, expected: str) -> list["ConfigValue"]:
        """Return the items of a list."""
        items = enumerate(self.expect(list, expected))
        return [ConfigValue(item, self.file, f"{self.way}[{i}]") for i, item in items]

    def text(self) -> str:
        """Return a text that a log can show as it is."""
        text = self.expect(str, PRINTABLE)
        if not text or not text.isprintable():
            raise self.refusal(PRINTABLE)
        return text

    def _member(self, key: str, item: Any) -> "ConfigValue":
        # Whoever wrote the file chose the key: a newline in it must not break the one line of a reason.
        name = key if key.isprintable() else shown(key)
        return ConfigValue(item, self.file, f"{self.way}.{name}" if self.way else name)


def shown(value: Any, limit: int = 80) -> str:
    """Return ``repr(value)``, cut to ``limit`` characters, for messages."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
