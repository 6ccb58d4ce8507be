"""Reads of the settings files that have hooks: before the first hook runs, and not again."""

from __future__ import annotations

import ctypes
import json
import os
import struct
from pathlib import Path

import pytest

from mudroom._cli.main import run

IN_OPEN = 0x20
HEAD = struct.Struct("iIII")
"""Head of an event of inotify: watch, mask, cookie, bytes of the name."""


class Opens:
    """The kernel's record of which files are opened, in order."""

    def __init__(self, *paths: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names: dict[int, str] = {}
        for path in paths:
            watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_OPEN)
            assert watch > 0, os.strerror(ctypes.get_errno())
            self._names[watch] = path.name

    def read(self) -> list[str]:
        """Return the names of the files so far; equal ones in a row may be one."""
        data = os.read(self._descriptor, 1 << 16)
        os.close(self._descriptor)
        names: list[str] = []
        while data:
            watch, _, _, length = HEAD.unpack_from(data)
            names.append(self._names[watch])
            data = data[HEAD.size + length :]
        return names


def test_settings_are_read_before_the_first_hook_and_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("sys.stdin", None)
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "a.txt").write_text("one\n")
    log = tmp_path / "log"
    log.touch()
    handlers = [{"hooks": [{"type": "command", "command": f"echo x >> {log}"}]}]
    events = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")
    settings = project / ".claude" / "settings.json"
    hooks = project / ".codex" / "hooks.json"
    for file in (settings, hooks):
        file.parent.mkdir()
        file.write_text(json.dumps({"hooks": dict.fromkeys(events, handlers)}))
    monkeypatch.chdir(project)
    opens = Opens(settings, hooks, log)
    assert run(["-p", "how many lines does a.txt have?", "-m", "offline", "--trust"]) == 0
    names = opens.read()
    assert names.count("hooks.json") == 1
    assert names.index("log") == len(names) - 1
    assert len(log.read_text().splitlines()) >= len(events)
    assert "Total" in capsys.readouterr().out
