"""A log of hook runs: one JSON line per run, in one file for all of the user's sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ...._platform.private_files import make_private_folder, replace_private_file
from .spec import HookSpec

_MAX_BYTES = 1 << 20  # at this size, the older half of the log is removed

_SHOWN_RUNS = 5


class HookRun(Struct, frozen=True, omit_defaults=True):
    """A run of a hook, or the start or end of a child reported to hooks."""

    at: float  # seconds since 1970
    session: str
    event: str
    origin: str = ""
    hook: str = ""  # the command or address; "" for the start or end of a child
    agent: str = ""  # run id of the child, "" for the root run
    agent_type: str = ""
    seconds: float = 0.0
    ending: str = ""  # exit code, status, or why there is none


class RunLog:
    """The log in the state folder. Failing to write it is not an error."""

    def __init__(self, home: str) -> None:
        self._path = Path(home, "hook-runs.jsonl")

    def append(self, run: HookRun) -> None:
        """Add a line. Processes writing at the same time do not mix their lines."""
        line = msgspec.json.encode(run) + b"\n"
        with suppress(OSError):
            self._shorten()
            make_private_folder(self._path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o600)
            try:
                # One write to a file opened with O_APPEND is not interleaved with others.
                os.write(descriptor, line)
            finally:
                os.close(descriptor)

    def _shorten(self) -> None:
        with suppress(FileNotFoundError):
            if self._path.stat().st_size < _MAX_BYTES:
                return
            lines = self._path.read_bytes().splitlines(keepends=True)
            replace_private_file(self._path, b"".join(lines[len(lines) // 2 :]))

    def read(self) -> Iterator[HookRun]:
        """Yield the runs, oldest first, skipping lines that cannot be read."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return
        for line in data.splitlines():
            with suppress(msgspec.DecodeError, msgspec.ValidationError):
                yield msgspec.json.decode(line, type=HookRun)

    def find_last_runs(self) -> dict[tuple[str, str, str], list[HookRun]]:
        """Find each hook's last runs, oldest first, by `make_run_key`."""
        runs: dict[tuple[str, str, str], list[HookRun]] = {}
        for run in self.read():
            if run.hook:
                runs.setdefault((run.event, run.origin, run.hook), []).append(run)
        return {key: of_hook[-_SHOWN_RUNS:] for key, of_hook in runs.items()}

    def find_open_children(self, session: str) -> dict[str, str]:
        """Find a session's children that started but have not ended: run id -> agent."""
        children: dict[str, str] = {}
        for run in self.read():
            if run.session != session or run.hook or not run.agent:
                continue
            if run.event == "SubagentStart":
                children[run.agent] = run.agent_type
            elif run.event == "SubagentStop":
                children.pop(run.agent, None)
        return children


def make_run_key(spec: HookSpec) -> tuple[str, str, str]:
    return spec.event, spec.origin, spec.shown
