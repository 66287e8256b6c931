"""Whether what a user requires leaves room for the Ray that raysm works with.

What flows in are lines of a requirements.txt, what flows out is nothing, or one sentence: pip in the instances would
find the same out, on every one of them, once they are paid for.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from raysm.contract.packages import RAY_RANGE, name_of, release_of
from raysm.errors import InvalidRequest

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["check_ray"]

RELEASES = 100
"""More than any minor version of Ray has had."""


def check_ray(requirements: Iterable[str]) -> None:
    """Refuse a requirement of a Ray that raysm cannot work with.

    Raises:
        InvalidRequest: Which one, and what to write.
    """
    minor = ".".join(map(str, release_of(RAY_RANGE.lstrip("<>="))))
    usable = [f"{minor}.{number}" for number in range(RELEASES)]
    for line in requirements:
        requirement = _requirement_of_ray(line)
        # Where a file is named, or a condition of the instance, only pip there can say what comes of it.
        if requirement is None or requirement.url or requirement.marker:
            continue
        if not any(requirement.specifier.contains(version, prereleases=True) for version in usable):
            raise InvalidRequest(
                f"the requirement {line!r} asks for a Ray that raysm cannot work with: it needs ray{RAY_RANGE}; drop "
                "it: raysm installs Ray if the image does not have it"
            )


def _requirement_of_ray(line: str) -> "Requirement | None":
    # The name first: of all other lines pip is the judge.
    if name_of(line) != "ray":
        return None
    # On first use: it takes a tenth of what importing all of the client does, and few jobs name Ray.
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(line.partition(" #")[0])
    except InvalidRequirement:
        return None
