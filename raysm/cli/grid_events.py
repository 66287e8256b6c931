"""A grid that runs in this process, for people: its controller flows in, a line for each row that changes flows out."""

from rich.console import Console
from rich.text import Text

from raysm.grid.endings import brief
from raysm.grid.running import Running

__all__ = ["follow"]


def follow(running: Running, console: Console) -> None:
    """Run a grid, and show what happens as it does: a line for each event."""
    # Of a grid that is new, what came as it was made is news too; of one that rows have joined, what was before is not.
    is_new = 0 < running.added == sum(running.store.states().values())
    last = 0 if is_new else max((event.seq for event in running.store.events(limit=10**9)), default=0)

    def sleep(seconds: float) -> None:
        nonlocal last
        # To the last one: a stop is a single step, however many rows wait, and there may be no further one.
        while events := running.store.events(last):
            for event in events:
                if event.task is not None and event.attempt is None:
                    console.print(Text(f"{event.task}: {event.now} {brief(event.text)}".rstrip()), soft_wrap=True)
            last = events[-1].seq
        running.clock.sleep(seconds)

    running.run(sleep)
    sleep(0.0)
