"""The files of an instance, as the service reads them from outside of it.

A program may put links anywhere into its folders. From outside, a link leads to another file than
in the instance: to one of this machine, which the program may not see. So a link is followed only
if its target is the instance's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from raysm.core.protocol.store import files_below

OF_THE_KERNEL = tuple(map(Path, ("/proc", "/sys", "/dev")))
"""Below these, the server reads facts about itself, such as its own environment."""

MEMORY = Path("/dev/shm")
"""A disk like any other, which may hold raysm's home."""


@dataclass(kw_only=True, slots=True)
class InstanceFiles:
    base: Path
    """The instance's ``/opt/ml`` on this machine, with links resolved."""
    sees_machine: bool
    """True if the instance sees this machine's files under their own names."""
    left: dict[Path, Path] = field(default_factory=dict)
    """Links that were not followed, with their targets."""

    def below(self, folder: Path) -> Iterator[Path]:
        """Yield the files below a folder of the instance, without those of others.

        The order is that of ``files_below``.
        """
        if self.may_read(folder):
            yield from files_below(folder, self.may_read)

    def may_read(self, path: Path) -> bool:
        """Return whether a path, with its links followed, is still the instance's.

        If not, remember it in ``left``.
        """
        target = path.resolve()
        if self.sees_machine:
            is_of_the_kernel = any(target.is_relative_to(folder) for folder in OF_THE_KERNEL)
            is_own = not is_of_the_kernel or target.is_relative_to(MEMORY)
        else:
            is_own = target.is_relative_to(self.base)
        if not is_own:
            self.left[path] = target
        return is_own

    def read_text(self, path: Path, length: int) -> str:
        """Return the beginning of a file; empty if it cannot be read, or is not the instance's."""
        try:
            # A program may write any encoding.
            is_own = self.may_read(path)
            return (
                path.read_text(encoding="utf-8", errors="replace")[:length].strip()
                if is_own
                else ""
            )
        except OSError:
            return ""

    def remarks(self) -> list[str]:
        """Return a line for each link that was not followed, and forget them."""
        where = "a file of the kernel" if self.sees_machine else "outside of the job's /opt/ml"
        lines = [
            f"raysm: {path.relative_to(self.base)} was not kept: it is a link to {target}, "
            f"{where}; copy the file in place of linking to it"
            for path, target in sorted(self.left.items())
        ]
        self.left.clear()
        return lines
