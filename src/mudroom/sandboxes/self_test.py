"""Self-test of a sandbox: its first command tries to read and write outside."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable

from .._core.ports import CommandResult
from .._platform.scratch_dirs import ScratchDir
from ..errors import WorkspaceError

SELF_TEST_TIMEOUT = 20.0
"""Seconds."""


class SelfTest:
    """Self-test that runs once, before the first command of the model.

    Arguments:
        run: runs a command in the sandbox: (command, sink) -> result.
    """

    def __init__(
        self, run: Callable[[str, Callable[[bytes], None]], Awaitable[CommandResult]]
    ) -> None:
        self._run = run
        self._lock = asyncio.Lock()
        self._has_passed = False

    async def ensure_passed(self) -> None:
        """Run the test if it has not passed yet. Raises WorkspaceError if it fails."""
        if self._has_passed:
            return
        async with self._lock:
            if self._has_passed:
                return
            with ScratchDir() as folder:
                await self._test(folder)
            self._has_passed = True

    async def _test(self, folder: str) -> None:
        key = secrets.token_hex(8)
        key_file = os.path.join(folder, "key")
        with open(key_file, "w", encoding="utf-8") as file:
            file.write(key)
        output = bytearray()
        command = f"cat {key_file}; echo x > {key_file}; echo x > {folder}/new; echo tried"
        result = await self._run(command, output.extend)
        with open(key_file, encoding="utf-8") as file:
            is_unchanged = file.read() == key and os.listdir(folder) == ["key"]
        was_run = result.code == 0 and b"tried" in output
        if not was_run or key.encode() in output or not is_unchanged:
            raise WorkspaceError(
                "the sandbox failed its self-test: a command could read or write outside of it, "
                "or did not run at all",
                remedy="No command is run. `mudroom doctor` says more; `--sandbox off` runs "
                "commands without a sandbox.",
            )
