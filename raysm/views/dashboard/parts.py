"""What a dashboard's page is made of: parts that are asked one after the other, until one has an answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["PAGE", "PageRequest", "Part", "answer_of"]

PAGE = ""
"""The path of Ray's page itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """One request, after it was let in."""

    path: str
    """Below the secret prefix, without a slash at its begin: ``api/jobs/``."""
    query: str
    """What follows the question mark, as it was sent."""
    request: "web.Request"
    """The whole."""

    @property
    def only_reads(self) -> bool:
        """Whether the request changes nothing."""
        return self.request.method in ("GET", "HEAD")

    @property
    def key(self) -> str:
        """The path with its query, by which Ray's page knows an answer."""
        return f"{self.path}?{self.query}" if self.query else self.path


class Part(Protocol):
    """Answers for some paths."""

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Return the answer; None where the path is another part's."""


async def answer_of(parts: Sequence[Part], page_request: PageRequest) -> "web.StreamResponse | None":
    """Return what the first part answers that has an answer; None where none has."""
    for part in parts:
        answer = await part.answer(page_request)
        if answer is not None:
            return answer
    return None
