"""Commands to a tmux server through one client in control mode."""

from __future__ import annotations

import asyncio
import re

_ESCAPED = re.compile(r'[\\"$~]')
_LONGEST_LINE = 1 << 24
"""Bytes."""


class TmuxControl:
    """A client that stays connected: a `tmux` process for each command costs more than the command.

    Arguments:
        name: the socket name of a tmux server that runs.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def run(self, *arguments: str) -> str:
        """Run one tmux command; return its output. An error of tmux fails the test."""
        async with self._turn:
            if self._process is None:
                self._process = await self._connect()
            return await _send(self._process, arguments)

    async def _connect(self) -> asyncio.subprocess.Process:
        """Attach a client that does not change the window's size and gets no program output."""
        process = await asyncio.create_subprocess_exec(
            "tmux",
            "-u",
            "-L",
            self._name,
            "-C",
            "attach-session",
            "-f",
            "ignore-size,no-output",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
        )
        await _read_reply(process)
        return process

    async def close(self) -> None:
        """End the client."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.communicate()


async def _send(process: asyncio.subprocess.Process, arguments: tuple[str, ...]) -> str:
    assert process.stdin
    process.stdin.write((" ".join(map(_quote, arguments)) + "\n").encode())
    await process.stdin.drain()
    return await _read_reply(process)


def _quote(text: str) -> str:
    """Return a text as one argument on a line of tmux commands."""
    escaped = _ESCAPED.sub(lambda found: "\\" + found[0], text)
    return '"' + escaped.replace("\n", "\\n") + '"'


async def _read_reply(process: asyncio.subprocess.Process) -> str:
    """Return the output of a command: the lines between `%begin` and `%end` of the same number."""
    assert process.stdout
    number = b""
    lines: list[bytes] = []
    async for line in process.stdout:
        kind, _, rest = line.partition(b" ")
        if not number:
            if kind == b"%begin":
                number = rest
        elif rest == number and kind in (b"%end", b"%error"):
            text = b"".join(lines).decode()
            assert kind == b"%end", text
            return text
        else:
            lines.append(line)
    raise AssertionError("tmux closed the connection")
