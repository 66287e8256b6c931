"""Takes out of records what is nobody else's business: account numbers, names of people, credentials, contents.

What flows in are values of calls and lines of logs, what flows out are JSON values that can be shown, and kept as
fixtures. Blanked is by what is known of the account, and by form: a value that nobody thought of has one of these.
"""

import datetime
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["ACCOUNT", "Blanks"]

ACCOUNT = "123456789012"
"""Stands for every account."""

FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(AKIA|ASIA|AIDA|AROA)[A-Z0-9]{12,}\b"), "(key id)"),
    (re.compile(r"(?i)(x-amz-(?:signature|security-token|credential)=)[^&\s\"']+"), r"\1(blanked)"),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+\w"), "(address)"),
    # Of AWS's own accounts too: which of the numbers of an image are whose, a reader cannot tell.
    # Twelve digits behind a point are a time's, or a metric's.
    (re.compile(r"(?<!\d)(?<!\d\.)\d{12}(?!\d|\.\d)"), ACCOUNT),
    (re.compile(r"\b[A-Za-z0-9+/_-]{100,}={0,2}"), "(long value)"),
)
"""What is a secret by its form, and what stands for it."""

NAMES = re.compile(r"(?i)token|secret|password|credential|signature|authorization")
"""Keys whose values are not kept; pages of lists have tokens too, and need none here."""

TAGS = "Tags"


class Blanks:
    """What stands for what, in one account."""

    def __init__(self, words: Mapping[str, str]) -> None:
        """Keep what is known of the account.

        Args:
            words: What is to be taken out, a user's ARN, a bucket's name, and what stands for it.
        """
        # The longest first: an ARN before the number that is in it.
        self._known = sorted(((text, word) for text, word in words.items() if text), key=lambda pair: -len(pair[0]))

    def text(self, text: str) -> str:
        """Return a text without what is nobody else's business."""
        for private, word in self._known:
            text = text.replace(private, word)
        for form, word in FORMS:
            text = form.sub(word, text)
        return text

    def value(self, value: Any) -> Any:
        """Return a value of a call or an answer as JSON has it."""
        match value:
            case Mapping():
                return {self.text(str(key)): self._member(str(key), item) for key, item in value.items()}
            case list() | tuple():
                return [self.value(item) for item in value]
            case str():
                return self.text(value)
            case None | bool() | int() | float():
                return value
            case datetime.datetime():
                return value.isoformat()
            case bytes():
                return f"({len(value)} bytes)"
            case _:  # what is downloaded comes as an object to be read
                return f"({type(value).__name__})"

    def _member(self, key: str, item: Any) -> Any:
        return "(blanked)" if NAMES.search(key) and isinstance(item, (str, bytes)) else self.value(item)
