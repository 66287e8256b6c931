"""What a command writes to its terminal or pipe: bytes flow in as fast as they are taken, and no faster.

A reader of asyncio's would read ahead, and what it holds when the command ends is neither sent nor in the terminal.
"""

import asyncio
import os

from raysm.contract.ssm.frames import PAYLOAD_BYTES

__all__ = ["Output"]


class Output:
    """The end of a terminal or of a pipe that is read here, and closed."""

    def __init__(self, descriptor: int) -> None:
        """Take ``descriptor`` over."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._woken = asyncio.Event()
        self._silence_s: float | None = None

    def end_by_silence(self, silence_s: float) -> None:
        """From now on ``silence_s`` without a byte are the end."""
        self._silence_s = silence_s
        self._woken.set()

    async def read(self) -> bytes:
        """Return the next bytes, at most one message's payload; none at the end."""
        is_silent = False
        while True:
            try:
                return os.read(self._descriptor, PAYLOAD_BYTES)
            except BlockingIOError:
                # Tried once more after the time: on a busy machine it may be this loop that was late.
                if is_silent:
                    return b""
            except OSError:
                # So a terminal ends whose last user has gone, where a pipe just ends.
                return b""
            is_silent = not await self._has_more()

    async def _has_more(self) -> bool:
        """Wait for the next byte, or for what else wakes; return False after the silence that is the end."""
        loop = asyncio.get_running_loop()
        self._woken.clear()
        loop.add_reader(self._descriptor, self._woken.set)
        try:
            async with asyncio.timeout(self._silence_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._descriptor)
        return True

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)
