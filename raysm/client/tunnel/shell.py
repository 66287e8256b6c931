"""A command or a shell in an instance, before the user's terminal.

What flows in are keys and the terminal's size, what flows out are the command's output and its exit code.
"""

import asyncio
import contextlib
import json
import logging
import os
import select
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence

from raysm.client.chain import Chain
from raysm.client.tunnel.channel import Channel
from raysm.client.tunnel.exit_code import SHELL, Marked
from raysm.client.tunnel.official_plugin import OfficialPlugin
from raysm.client.tunnel.opening import let_in
from raysm.client.tunnel.session import COMMAND, Document, Sessions
from raysm.contract.ssm.frames import PAYLOAD_BYTES, Frame, PayloadType
from raysm.errors import ServiceError

__all__ = ["Shell", "Terminal", "enter"]

INTERRUPT = b"\x03"
"""What Ctrl-C types."""
ENCRYPTION = "KMSEncryption"
"""What an agent asks for where the account encrypts shells; it takes KMS, and AWS's own plugin can do it."""

_log = logging.getLogger("raysm")


class Terminal:
    """The user's end: two descriptors, which are a terminal or are none.

    Attributes:
        is_one: Whether somebody sits before it.
    """

    def __init__(self, stdin: int = 0, stdout: int = 1) -> None:
        """Read from and write to these."""
        self.stdin = stdin
        self.stdout = stdout
        self.is_one = os.isatty(stdin) and os.isatty(stdout)

    def write(self, data: bytes) -> None:
        """Show all of ``data``, however slow whoever reads it is.

        Raises:
            BrokenPipeError: Nobody reads it any more.
        """
        while data:
            try:
                # A terminal or a pipe may take a part of it.
                data = data[os.write(self.stdout, data) :]
            except BlockingIOError:
                # A pipe is shared with whoever made it, and programs that wait for many things set it so.
                select.select([], [self.stdout], [])

    def size(self) -> tuple[int, int]:
        """Return columns and rows."""
        columns, rows = os.get_terminal_size(self.stdout)
        return columns, rows

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        """Within it, every key is passed on as it is, Ctrl-C too; where it is no terminal nothing changes."""
        if not self.is_one:
            yield
            return
        import termios
        import tty

        before = termios.tcgetattr(self.stdin)
        try:
            tty.setraw(self.stdin, termios.TCSADRAIN)  # what was typed ahead stays
            yield
        finally:
            termios.tcsetattr(self.stdin, termios.TCSADRAIN, before)


def enter(
    chain: Chain,
    command: Sequence[str] = (),
    *,
    on: str | None = None,
    terminal: Terminal | None = None,
    find_plugin: Callable[[], OfficialPlugin | None] = OfficialPlugin.find,
) -> int:
    """Run a command in an instance before the user's terminal; return its exit code.

    Where stdin and stdout are no terminal, the command reads nothing, and its errors come with its output.

    Args:
        chain: The job.
        command: Its words; none is a shell.
        on: The instance, ``algo-2``; None is the head.
        terminal: The user's; None is this process's.
        find_plugin: Returns AWS's plugin, which carries a shell that the account encrypts; None where there is none.

    Raises:
        InvalidRequest: There is no such instance, or the job lets nobody in.
        ServiceError: The service refuses the session, or it ended before the command did.
    """
    terminal, sessions, target = terminal or Terminal(), Sessions(chain.service), let_in(chain, on)
    try:
        return asyncio.run(Shell(sessions, terminal, command).run(target))
    except ServiceError as error:
        # Not where the output goes into a pipe: the plugin writes words of its own into it.
        plugin = find_plugin() if error.code == ENCRYPTION and terminal.is_one else None
        if plugin is None:
            raise
    # Said, for what the plugin cannot do: it ends with 0 whatever the command does.
    _log.warning("the account encrypts shells with a KMS key: AWS's plugin carries this one, and tells no exit code")
    document = Document(name=COMMAND, parameters={"command": [shlex.join(command or ["sh", "-c", SHELL])]})
    return run_by_plugin(plugin, sessions, target, document)


def run_by_plugin(plugin: OfficialPlugin, sessions: Sessions, target: str, document: Document) -> int:
    """Have AWS's plugin carry a session before this process's terminal; return the plugin's exit code."""
    entry, service = asyncio.run(sessions.start(target, document)), sessions.service
    try:
        return plugin.run(
            entry,
            sessions.request(target, document),
            region=service.region,
            profile=service.profile,
            endpoint=service.client("ssm").meta.endpoint_url,
        )
    finally:
        # The plugin ends its session only where the shell ended by itself.
        with contextlib.suppress(ServiceError):
            asyncio.run(sessions.terminate(entry.session))


class Shell:
    """One command, from its start to its exit code."""

    def __init__(self, sessions: Sessions, terminal: Terminal, command: Sequence[str]) -> None:
        """Begin nothing yet.

        Args:
            sessions: Where sessions are to be had.
            terminal: The user's.
            command: Its words; none is a shell.
        """
        self._sessions = sessions
        self._terminal = terminal
        self._marked = Marked(command, has_terminal=terminal.is_one)
        # A queue: keys are read in a callback of the loop, which must not wait for the network.
        self._typed: asyncio.Queue[tuple[PayloadType, bytes]] = asyncio.Queue()
        self._told = asyncio.Event()
        self._code: int | None = None

    async def run(self, target: str) -> int:
        """Run it in the instance that is ``target``; return its exit code.

        Raises:
            ServiceError: The session is refused, or ended before the command did.
        """
        channel = Channel(self._sessions, self._deliver)
        await channel.open(target, Document(name=COMMAND, parameters={"command": [self._marked.line()]}))
        typing = asyncio.ensure_future(self._send_typed(channel))
        try:
            with self._terminal.raw(), self._heard(asyncio.get_running_loop()):
                # The mark tells the end of the command, and the agent that of the session: whichever comes first.
                ends = [asyncio.ensure_future(event.wait()) for event in (self._told, channel.ended)]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for waiting in ends:
                    waiting.cancel()
        finally:
            typing.cancel()
            await channel.close()
        if self._code is None:
            # What looked like the beginning of a mark was output after all.
            self._terminal.write(self._marked.rest())
            raise ServiceError(f"the session ended before the command did: {channel.error}")
        return self._code

    async def _deliver(self, frame: Frame) -> None:
        if frame.payload_type not in (PayloadType.OUTPUT, PayloadType.STDERR):
            return
        shown = self._marked.feed(frame.payload)
        # Whoever shows it may be a pager: nothing else is to wait for it.
        try:
            await asyncio.to_thread(self._terminal.write, shown)
        except BrokenPipeError:
            # As a command ends here whose output goes into ``head -1``: without a word.
            self._end(128 + signal.SIGPIPE)
        if self._marked.code is not None:
            self._end(self._marked.code)

    def _end(self, code: int) -> None:
        self._code = code if self._code is None else self._code
        self._told.set()

    @contextlib.contextmanager
    def _heard(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Within it, keys, sizes and Ctrl-C of the user go to the command."""
        if self._terminal.is_one:
            self._tell_size()
            loop.add_reader(self._terminal.stdin, self._read_keys, loop)
            # The terminal of the instance does not hear when the user's window changes: its agent is told.
            loop.add_signal_handler(signal.SIGWINCH, self._tell_size)
        with self._interrupted(loop):
            try:
                yield
            finally:
                if self._terminal.is_one:
                    loop.remove_reader(self._terminal.stdin)
                    loop.remove_signal_handler(signal.SIGWINCH)

    @contextlib.contextmanager
    def _interrupted(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        # Without a terminal Ctrl-C comes as a signal; to a thread that is not the main one it does not come at all.
        try:
            loop.add_signal_handler(signal.SIGINT, self._type, PayloadType.OUTPUT, INTERRUPT)
        except (ValueError, RuntimeError):
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _type(self, kind: PayloadType, data: bytes) -> None:
        self._typed.put_nowait((kind, data))

    def _tell_size(self) -> None:
        columns, rows = self._terminal.size()
        self._type(PayloadType.SIZE, json.dumps({"cols": columns, "rows": rows}).encode())

    def _read_keys(self, loop: asyncio.AbstractEventLoop) -> None:
        # At most what one message carries.
        keys = os.read(self._terminal.stdin, PAYLOAD_BYTES)
        if keys:
            self._type(PayloadType.OUTPUT, keys)
        else:
            loop.remove_reader(self._terminal.stdin)

    async def _send_typed(self, channel: Channel) -> None:
        with contextlib.suppress(OSError):
            while True:
                await channel.send(*await self._typed.get())
