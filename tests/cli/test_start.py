"""The start of a session: flags become settings, settings become session options, each once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mudroom import Children
from mudroom._cli.actions.load_permissions import LoadedPermissions
from mudroom._cli.actions.open_session import make_session_options
from mudroom._cli.commands.root import root_command
from mudroom._cli.main import run
from mudroom._session import config
from mudroom._session.config import Settings
from mudroom._session.options import SessionOptions, SharedOptions, gather_options, list_places
from mudroom.permissions import rules as permission_files
from mudroom.permissions.rules import Permissions

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
