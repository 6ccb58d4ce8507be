"""Themes, title and notifications, the status line of the user, images of the clipboard."""

from __future__ import annotations

import asyncio
import base64
import os
import pty
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mudroom._cli.interactive.prompt_screen import ReplyFilter
from mudroom._cli.interactive.terminal import status_command
from mudroom._cli.interactive.terminal.attention import Attention, choose_channel
from mudroom._cli.interactive.terminal.clipboard_images import save_clipboard_image
from mudroom._cli.output.markdown import format_unfinished, render_markdown
from mudroom._cli.output.notices.start import select_new_notices
from mudroom._cli.output.progress import print_ledger
from mudroom._cli.output.text import paint
from mudroom._cli.output.theme import LIGHT_COLORS, use_theme
from mudroom._session.config import load_settings
from mudroom.driving import Notice
from mudroom.errors import UsageError

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(autouse=True)
def dark_theme() -> Iterator[None]:
    """Use the dark theme again after each test."""
    yield
    use_theme("dark")


def compute_contrast_with_white(rgb: str) -> float:
    channels = [int(rgb[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


def test_colors_of_the_light_theme_can_be_read_on_white() -> None:
    for name, (_, rgb) in LIGHT_COLORS.items():
        assert compute_contrast_with_white(rgb) >= 4.9, name


def test_a_theme_changes_lines_and_rendered_markdown() -> None:
    markdown = "Use `code`:\n\n```python\nreturn 'x'  # why\n```\n"
    dark = render_markdown(markdown, columns=60, color=True)
    assert paint([[("a", "bold yellow")]], color=True) == "\x1b[1;33ma\x1b[0m\n"
    use_theme("light")
    assert paint([[("a", "bold yellow")]], color=True) == "\x1b[1;38;5;94ma\x1b[0m\n"
    light = render_markdown(markdown, columns=60, color=True)
    assert "\x1b[1;36m" in dark and "\x1b[1;38;5;23m" in light and "\x1b[1;36m" not in light
    (line, *_) = format_unfinished("a `b`", columns=60, height=3, color=True)
    assert ("b", "bold cyan") in line, "unfinished lines keep the names of their colors"


@pytest.mark.parametrize(
    ("value", "is_light"), [("0;15", True), ("15;0", False), ("7", True), ("", False), ("x", False)]
)
def test_the_theme_auto_follows_colorfgbg(value: str, is_light: bool) -> None:
    use_theme("auto", {"COLORFGBG": value})
    assert ("38;5" in paint([[("a", "red")]], color=True)) is is_light


@pytest.mark.parametrize(
    ("pieces", "typed", "replies"),
    [
        (["a\x1b]11;rgb:ffff/ffff/ffff\x07b"], "ab", [True]),
        (["\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\"], "", [False]),
        (["x\x1b]11;rgb:ff", "ff/ffff/e", "eee\x1b", "\\y"], "xy", [True]),
        (["\x1b]11;rgba:00/00/00/ff\x07"], "", [False]),
        (["\x1b", "[A"], "\x1b[A", []),
    ],
)
def test_the_reply_about_the_background_is_no_input(
    pieces: list[str], typed: str, replies: list[bool]
) -> None:
    seen: list[str] = []
    received: list[bool] = []
    feed = ReplyFilter(seen.append, received.append)
    for piece in pieces:
        feed(piece)
    assert ("".join(seen), received) == (typed, replies)


def test_an_end_or_a_question_after_long_work_is_notified() -> None:
    now = 0.0
    written: list[str] = []
    terminal = Attention(written.append, "osc9", notify_after=10, has_title=True, now=lambda: now)
    terminal.open("/home/x/项目\x07")
    terminal.start_work()
    terminal.ask("Which?\x1b]0;bad\x07")
    now = 5.0
    terminal.start_work()
    now = 14.9
    terminal.finish_work()
    assert not any(text.startswith("\x1b]9;") for text in written), "the user still looks"
    terminal.start_work()
    now = 25.0
    terminal.ask("May I?")
    terminal.finish_work()
    terminal.close()
    assert written == [
        "\x1b[22;2t",
        "\x1b]2;mudroom: 项目\x07",
        "\x1b]2;mudroom: 项目 (working)\x07",
        "\x1b]2;mudroom: 项目 (question)\x07",
        "\x1b]2;mudroom: 项目 (working)\x07",
        "\x1b]2;mudroom: 项目\x07",
        "\x1b]2;mudroom: 项目 (working)\x07",
        "\x1b]2;mudroom: 项目 (question)\x07",
        "\x1b]9;mudroom asks: May I?\x07",
        "\x1b]2;mudroom: 项目\x07",
        "\x1b]9;mudroom is done in 项目\x07",
        "\x1b[23;2t",
    ]


@pytest.mark.parametrize(
    ("setting", "environ", "channel"),
    [
        ("auto", {}, "bell"),
        ("auto", {"TERM_PROGRAM": "iTerm.app"}, "osc9"),
        ("auto", {"TERM_PROGRAM": "iTerm.app", "TMUX": "/t"}, "bell"),
        ("auto", {"TERM": "rxvt-unicode-256color"}, "osc777"),
        ("off", {"TERM_PROGRAM": "WezTerm"}, "off"),
    ],
)
def test_the_terminal_decides_how_it_is_notified(
    setting: str, environ: dict[str, str], channel: str
) -> None:
    assert choose_channel(setting, environ) == channel


def test_a_project_cannot_set_a_command_for_the_status_line(tmp_path: Path) -> None:
    (tmp_path / ".mudroom.toml").write_text('status_line = "touch owned"\n')
    with pytest.raises(UsageError, match="a project file may not set 'status_line'"):
        load_settings(cwd=str(tmp_path), environ={"HOME": str(tmp_path)}, flags={})


class ShownState:
    """State of a conversation that a test sets."""

    def __init__(self, folder: Path) -> None:
        self._state: dict[str, Any] = {"cwd": str(folder), "model": {"id": "m:x"}}

    def get(self) -> dict[str, Any]:
        return self._state


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ('python3 -c \'import json,sys; print(json.load(sys.stdin)["model"]["id"])\'', "m:x"),
        (r"printf '\033[31mred\033[0m 文\nsecond'", "red 文"),
        ("pwd -P", "CWD"),
        ("exit 3", "status_line: the command ended with 3"),
        ("sleep 60 & sleep 60", "status_line: no output within 0 s"),
    ],
)
async def test_the_status_line_is_the_first_line_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, line: str
) -> None:
    shown = ShownState(tmp_path.resolve())
    monkeypatch.setattr(status_command, "describe_state", ShownState.get)
    monkeypatch.setattr(status_command, "MAX_SECONDS", 0.2 if "sleep" in command else 60)
    changed = asyncio.Event()
    status = status_command.StatusCommand(command, changed.set)
    status.attach(shown)  # pyright: ignore[reportArgumentType]
    task = asyncio.create_task(status.run())
    try:
        async with asyncio.timeout(60):
            await changed.wait()
    finally:
        task.cancel()
    assert status.line == (str(tmp_path.resolve()) if line == "CWD" else line)


def make_program(folder: Path, name: str, text: str) -> dict[str, str]:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_an_image_of_the_clipboard_becomes_a_private_file(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(PNG)
    environ = make_program(tmp_path, "xclip", f"cat '{tmp_path}/image.png'")
    path = Path(save_clipboard_image(str(tmp_path / "home"), {**environ, "DISPLAY": ":0"}))
    assert path.read_bytes() == PNG and path.suffix == ".png"
    assert path.stat().st_mode & 0o777 == 0o600
    os.utime(path, (1, 1))
    save_clipboard_image(str(tmp_path / "home"), {**environ, "DISPLAY": ":0"})
    assert not path.exists(), "images of earlier days are deleted"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "there is no clipboard: this terminal has no display. Save the image"),
        ({"DISPLAY": ":0", "PATH": "/nowhere"}, "cannot be read. Install xclip."),
        (
            {"DISPLAY": ":0", "WAYLAND_DISPLAY": "w", "PATH": "/nowhere"},
            "Install wl-paste or xclip.",
        ),
    ],
)
def test_a_clipboard_that_cannot_be_read_says_what_to_do(
    tmp_path: Path, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        save_clipboard_image(str(tmp_path), environ)


def test_a_clipboard_without_an_image_says_so(tmp_path: Path) -> None:
    environ = make_program(tmp_path, "wl-paste", "echo text")
    with pytest.raises(UsageError, match="the clipboard has no image"):
        save_clipboard_image(str(tmp_path), {**environ, "WAYLAND_DISPLAY": "w"})


def test_a_notice_about_the_machine_is_shown_once(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    notices = [Notice("sandbox", "没有 bwrap."), Notice("unused", "agent x is not used")]
    assert list(select_new_notices(home, "/a", notices)) == notices
    assert list(select_new_notices(home, "/b", notices)) == notices[1:]
    changed = [Notice("sandbox", "sandbox off")]
    assert list(select_new_notices(home, "/a", changed)) == changed
    assert (tmp_path / "home" / "shown-notices.txt").stat().st_mode & 0o777 == 0o600


def test_a_notice_about_agents_is_shown_once_per_folder_and_set_of_agents(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    one = [Notice("agents", "reviewer; they only read")]
    two = [Notice("agents", "reviewer, tester; they only read")]
    for folder in ("/a", "/b\nc"):
        for notices in (one, two):
            assert list(select_new_notices(home, folder, notices)) == notices
            assert list(select_new_notices(home, folder, notices)) == []


def test_the_ledger_has_the_width_of_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, screen = pty.openpty()
    termios.tcsetwinsize(screen, (24, 132))
    with os.fdopen(terminal, "rb"), os.fdopen(screen, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        print_ledger("word " * 50, color=True)
        shown = os.read(terminal, 10_000).decode()
    widths = [len(line.rstrip()) for line in shown.split("\n") if "word" in line]
    assert 100 < max(widths) < 150, shown


def test_the_ledger_stands_out_only_with_color(capsys: pytest.CaptureFixture[str]) -> None:
    print_ledger("4 children read 3 lines.", color=False)
    assert capsys.readouterr().err == "4 children read 3 lines.\n"
    print_ledger("4 children read 3 lines.", color=True)
    assert "\x1b[1;32m4 children read 3 lines.\x1b[0m\n" in capsys.readouterr().err
