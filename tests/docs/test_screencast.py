"""The animated picture of the demo: terminal bytes at their real speed."""

from __future__ import annotations

import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PASSING = re.compile(r'<g visibility="hidden">.*?</g>')


@pytest.fixture(scope="module")
def cast() -> ModuleType:
    loader = SourceFileLoader("screencast", str(ROOT / "scripts" / "screencast"))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    loader.exec_module(module := module_from_spec(spec))
    return module


def extract_words(picture: str) -> str:
    return re.sub(r"<[^>]*>", "", picture).replace("\u00a0", " ").strip()


def test_a_row_is_visible_as_long_as_it_was_on_the_screen(cast: ModuleType) -> None:
    written = [
        (0.0, "one\r\n0%"),
        (0.5, "one\r\n0%\r\x1b[K50%"),
        (1.0, "one\r\n0%\r\x1b[K50%\r\x1b[K\x1b[32mdone\x1b[0m"),
    ]
    picture = cast.draw_svg([(at, cast.render_screen(text)) for at, text in written])
    assert [extract_words(each) for each in PASSING.findall(picture)] == ["0%", "50%"]
    assert re.findall(r'begin="([^"]+)" end="([^"]+)"', picture) == [
        ("0.0s", "0.5s"),
        ("0.5s", "1.0s"),
        ("0s", "1.0s"),
    ]
    assert picture.count(">one<") == 1 and cast.COLORS["32"] in picture


def test_a_viewer_without_animation_shows_the_end(cast: ModuleType) -> None:
    frames = [
        (0.0, cast.render_screen("$ go\r\nworking")),
        (2.0, cast.render_screen("$ go\r\n\x1b[Kall done\r\nledger")),
    ]
    assert extract_words(PASSING.sub("", cast.draw_svg(frames))).split("\n") == [
        "$ go",
        "all done",
        "ledger",
    ]


def test_incomplete_characters_are_left_for_the_next_picture(cast: ModuleType) -> None:
    assert (
        cast.complete_text("a├".encode()[:-1]) == "a"
        and cast.complete_text(b"a\x1b[3") == "a"
        and cast.complete_text(b"a\x1b[32mb") == "a\x1b[32mb"
    )


def test_a_command_is_recorded_at_its_real_speed(cast: ModuleType) -> None:
    moments = cast.record_terminal(
        [
            sys.executable,
            "-c",
            "import time; print('one', flush=True); time.sleep(2); print('two')",
        ]
    )
    (first, one), (last, both) = moments[0], moments[-1]
    assert (
        cast.complete_text(one).split() == ["one"]
        and cast.complete_text(both).split() == ["one", "two"]
        and last - first > 0.6
    )


def test_the_picture_is_animated_and_small() -> None:
    picture = (ROOT / "docs" / "assets" / "demo.svg").read_text("utf-8")
    assert len(PASSING.findall(picture)) > 20 and len(picture) < 200_000
