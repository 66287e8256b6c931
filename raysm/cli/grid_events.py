"""A grid that runs in this process, for people: its controller flows in, a line for each row that changes flows out."""

from rich.console import Console
from rich.text import Text

from raysm.grid.running import Running

__all__ = ["follow"]


def follow(running: Running, console: Console) -> None:
    """Run a grid, and show what happens as it does: a line for each event."""
    last = max((event.seq for event in running.store.events(limit=10**9)), default=0) if not running.added else 0

    def sleep(seconds: float) -> None:
        nonlocal last
        for event in running.store.events(last):
            last = event.seq
            if event.task is not None and event.attempt is None:
                console.print(Text(f"{event.task}: {event.now} {event.text}".rstrip()), soft_wrap=True)
        running.clock.sleep(seconds)

    running.run(sleep)
    sleep(0.0)
