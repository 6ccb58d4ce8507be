"""What a start of the program reads and imports, until its first model request has arrived."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from mudroom import Children
from mudroom._adapters.journals.sqlite import reader
from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._cli.actions.load_permissions import LoadedPermissions
from mudroom._cli.actions.open_session import make_session_options
from mudroom._cli.commands.root import root_command
from mudroom._cli.main import run
from mudroom._core.events import SessionOpened, StoredEvent
from mudroom._core.messages import TextBlock
from mudroom._session import config
from mudroom._session.config import Settings
from mudroom._session.options import SessionOptions, SharedOptions, gather_options, list_places
from mudroom.permissions import rules as permission_files
from mudroom.permissions.rules import Permissions
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_events,
    turn_events,
)

PROGRAM = """
import json, os, re, signal, sys
import re._compiler

compiled = []
compile_pattern = re._compiler.compile

def record_pattern(pattern, flags=0):
    frame = sys._getframe()
    while frame and frame.f_globals["__name__"] in ("re", "__main__"):
        frame = frame.f_back
    module = frame.f_globals["__name__"]
    while frame and frame.f_globals["__name__"] != "importlib._bootstrap":
        frame = frame.f_back
    compiled.append([module, str(pattern), frame is not None])
    return compile_pattern(pattern, flags)

def report(*_):
    with open(sys.argv.pop(), "w") as file:
        json.dump({"modules": sorted(sys.modules), "patterns": compiled}, file)
    os._exit(0)

re._compiler.compile = record_pattern
signal.signal(signal.SIGUSR1, report)
from mudroom._cli.main import main
main(sys.argv[1:-1])
"""
"""The command line, with a report about itself when it is sent SIGUSR1."""


class Start(Struct):
    """Modules that a process has imported, and patterns: module, pattern, if at its import."""

    modules: list[str]
    patterns: list[tuple[str, str, bool]]

    def list_own_modules(self) -> list[str]:
        return [name for name in self.modules if name.partition(".")[0] == "mudroom"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """The state of `mudroom -p` when its first request has arrived."""
    folder = tmp_path_factory.mktemp("start")
    result = folder / "result.json"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "ANTHROPIC_API_KEY": "key",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
        }
        words = ["-p", "Say hello.", "--model", "anthropic:claude-sonnet-4-5", "-C", str(folder)]
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words, str(result)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environ,
        )
        connection, _ = server.accept()
        with connection:
            connection.recv(1)
            process.send_signal(signal.SIGUSR1)
            _, errors = process.communicate(timeout=60)
    assert not process.returncode, errors.decode()
    found = json.loads(Path(result).read_bytes())
    return Start(found["modules"], [tuple(pattern) for pattern in found["patterns"]])


def test_no_module_compiles_a_pattern_when_it_is_imported(start: Start) -> None:
    own = [
        f"{module}: {pattern}"
        for module, pattern, at_import in start.patterns
        if at_import and module.partition(".")[0] == "mudroom"
    ]
    assert not own


MAX_OWN_MODULES = 300
"""Modules of mudroom that a start may import. Each costs about 0.3 ms."""

LATER = {
    "aiohttp",
    "dataclasses",
    "opentelemetry",
    "difflib",
    "prompt_toolkit",
    "rich",
    "shlex",
    "yaml",
    "mudroom._engine.children.child_run",
    "mudroom._engine.children.team",
    "mudroom._engine.compaction.shortening",
    "mudroom._engine.resume",
    "mudroom._engine.tool_calls",
    "mudroom._cli.actions.permissions",
    "mudroom._cli.commands.sessions",
    "mudroom._cli.output.live_tree",
    "mudroom._cli.output.markdown",
    "mudroom._adapters.boards",
    "mudroom._adapters.integrations.usable_programs",
    "mudroom._projections.spans",
    "mudroom._projections.stream_json",
    "mudroom.scope",
    "mudroom._viewer",
}
"""Modules that are imported when a command, an answer or a file needs them."""


def test_a_start_imports_few_modules(start: Start) -> None:
    assert not LATER.intersection(start.modules)
    assert len(start.list_own_modules()) <= MAX_OWN_MODULES


def test_a_list_of_sessions_needs_no_event_loop_and_an_address_no_web_server(
    tmp_path: Path,
) -> None:
    program = """
import sys
from mudroom._cli.main import run

assert run(["runs"]) == 0
assert "asyncio" not in sys.modules
import mudroom._cli.actions.serve_viewer
assert "aiohttp" not in sys.modules and "mudroom._adapters.workspaces" not in sys.modules
"""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environ, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "No sessions" in ended.stdout


NO_SETTINGS = {
    *("words", "print_prompt", "cwd", "verbose", "quiet", "version", "help", "help_all"),
    *("resume", "continue_last", "fork", "session_id", "name"),
}
"""Flags that concern the command line alone, or select a session."""
OTHER_NAMES = {
    "skip_permissions": "permission_mode",
    "no_color": "color",
    "screen_reader": "screen",
}
"""Flags that set a setting of another name."""


def count_calls(monkeypatch: pytest.MonkeyPatch, counts: Counter[str]) -> None:
    def count_calls(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: object, **kwargs: object) -> object:
            counts[name] += 1
            return function(*args, **kwargs)

        return wrapper

    monkeypatch.setattr(config, "load_settings", count_calls("settings", config.load_settings))
    load_files = count_calls("permissions", permission_files.load_permission_files)
    monkeypatch.setattr(permission_files, "load_permission_files", load_files)


@pytest.mark.parametrize("flags", [[], ["--continue"], ["--resume", "last", "--fork-session"]])
def test_settings_and_permissions_are_loaded_once_per_start(
    flags: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "etc"))
    project = tmp_path / "project"
    project.mkdir()
    arguments = ["-C", str(project), "-m", "offline", "-p", "hello"]
    run(arguments)
    counts = Counter[str]()
    count_calls(monkeypatch, counts)
    run([*arguments, *flags])
    assert counts == {"settings": 1, "permissions": 1}, capsys.readouterr().err


OBSERVED_START = """
import gc, sys
from mudroom._cli.main import main
from mudroom._core import json_values

sizes = []
gc.callbacks.append(lambda phase, info: phase == "start" and sizes.append(gc.get_count()[0]))
try:
    main()
finally:
    print("young objects", max(sizes, default=0), file=sys.stderr)
    print("decoders", json_values.get_decoder.cache_info().currsize, file=sys.stderr)
"""


def test_a_prompt_starts_without_the_garbage_collector_and_a_decoder(tmp_path: Path) -> None:
    """Each takes some milliseconds, and a new session needs neither."""
    environ = {**os.environ, "MUDROOM_HOME": str(tmp_path / "home"), "PYTHONPATH": ""}
    command = [sys.executable, "-c", OBSERVED_START, "-p", "hello", "-m", "offline"]
    ended = subprocess.run(
        command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = dict(line.rsplit(" ", 1) for line in ended.stderr.splitlines()[-2:])
    assert int(lines["young objects"]) < 10_000
    assert int(lines["decoders"]) <= 1  # that of summaries; the one of events takes longer


def test_every_flag_is_a_setting_of_its_name() -> None:
    flags = {parameter.name or "" for parameter in root_command.params} - NO_SETTINGS
    settings = {OTHER_NAMES.get(flag, flag) for flag in flags}
    assert settings <= list_places(Settings).keys()


def test_settings_reach_the_session_options_by_name() -> None:
    children = Children(turns=3, parallel=2)
    settings = Settings(model="offline", children=children, home="/h", allow_net=True)
    loaded = LoadedPermissions(Permissions(), ())
    options = SessionOptions(
        **gather_options(make_session_options(settings, ".", loaded, []), SessionOptions())
    )
    places = list_places(SessionOptions)
    for name in ("model", "sandbox", *(list_places(SharedOptions).keys() - {"prices"})):
        assert places[name].read(options) == settings.get(name)


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


SESSION = "0b5e8a52-6f0c-4b6e-9d0e-3f1c2d4e5a6b"
QUESTION = "Which testing framework does this project use?"


async def write_session(home: Path, folder: Path, *, is_finished: bool) -> None:
    call = tool_call("c1", "read", path="pyproject.toml")
    events: list[StoredEvent] = [
        SessionOpened(at=0.0, session=SESSION, cwd=str(folder), version="0"),
        run_started("1", prompt=QUESTION),
        *turn_events("1", call),
        *tool_call_events("1", call, "[tool.pytest.ini_options]"),
    ]
    if is_finished:
        events += [*turn_events("1", TextBlock("pytest."), turn=2), run_finished("1")]
    journal = await SqliteStore(home).create(SESSION)
    await journal.append(*events)
    await journal.close()


@pytest.mark.parametrize(
    ("arguments", "is_finished"),
    [
        (["--resume", SESSION, "-p", QUESTION], True),
        (["--resume", SESSION, "-p", QUESTION], False),
        (["resume", SESSION], False),
    ],
)
def test_the_command_line_reads_each_answer_of_the_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], is_finished: bool
) -> None:
    home = tmp_path / "home"
    folder = tmp_path / "project"
    folder.mkdir()
    folder.joinpath("pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    monkeypatch.setenv("MUDROOM_HOME", str(home))
    monkeypatch.setenv("MUDROOM_MODEL", "offline")
    monkeypatch.chdir(folder)
    asyncio.run(write_session(home, folder, is_finished=is_finished))
    reads: Counter[bytes] = Counter()
    decode = reader.decode_event

    def count(body: bytes) -> StoredEvent:
        reads[body] += 1
        return decode(body)

    monkeypatch.setattr(reader, "decode_event", count)
    with open(os.devnull, encoding="utf-8") as no_input:
        monkeypatch.setattr("sys.stdin", no_input)
        run(arguments)
    answers = [number for body, number in reads.items() if b'"turn_finished"' in body]
    assert answers
    assert set(answers) == {1}
