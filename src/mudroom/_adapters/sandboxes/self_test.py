"""Tests a sandbox: its first command tries to read and write outside."""

from __future__ import annotations

import asyncio
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable

from ..._core.ports import CommandResult
from ..._platform.scratch_dirs import ScratchDir
from ...errors import WorkspaceError

_TEST_TIMEOUT = 20.0  # seconds


class SelfTestedSandbox(ABC):
    def __init__(self) -> None:
        self._test_lock = asyncio.Lock()
        self._has_passed = False

    @abstractmethod
    async def _run_isolated(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult: ...

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run the command. Raises WorkspaceError if the sandbox or its self-test fails."""
        if not self._has_passed:
            async with self._test_lock:
                if not self._has_passed:
                    await self._test()
                    self._has_passed = True
        return await self._run_isolated(command, timeout=timeout, sink=sink)

    async def _test(self) -> None:
        key = secrets.token_hex(8)
        output = bytearray()
        with ScratchDir() as folder:
            key_file = os.path.join(folder, "key")
            with open(key_file, "w", encoding="utf-8") as file:
                file.write(key)
            command = f"cat {key_file}; echo x > {key_file}; echo x > {folder}/new; echo tried"
            result = await self._run_isolated(command, timeout=_TEST_TIMEOUT, sink=output.extend)
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
