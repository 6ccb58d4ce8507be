"""The animated picture of the demo: terminal bytes at their real speed."""

from __future__ import annotations

import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

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
        ("run.begin+0.0s", "run.begin+0.5s"),
        ("run.begin+0.5s", "run.begin+1.0s"),
        ("run.begin", "run.begin+1.0s"),
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


def test_the_cursor_moves_over_text_that_stays(cast: ModuleType) -> None:
    rows = cast.render_screen("abcd\r\nline\x1b[1A\x1b[3DX\x1b[1CY\r\x1b[2Bend")
    assert ["".join(character for character, _ in row) for row in rows] == ["aXcY", "line", "end"]


def test_keys_are_pressed_after_the_text_that_they_wait_for(cast: ModuleType) -> None:
    program = "for word in ('one', 'two'): print(word, input())"
    moments = cast.record_terminal(
        [sys.executable, "-c", program], (("", 0.1, "first\r"), ("one first", 0.1, "second\r"))
    )
    assert "two second" in cast.complete_text(moments[-1][1])


@pytest.mark.parametrize("name", ["demo", "steering", "merging"])
def test_the_pictures_are_animated_and_small(name: str) -> None:
    picture = (ROOT / "docs" / "assets" / f"{name}.svg").read_text("utf-8")
    assert len(PASSING.findall(picture)) > 20 and len(picture) < 200_000
    assert 'begin="0s;run.end"' in picture, "it plays again"
    ElementTree.fromstring(picture)  # a control character makes the picture unreadable


def test_children_work_in_parallel_within_two_seconds_and_one_gets_a_message(
    cast: ModuleType,
) -> None:
    picture = (ROOT / "docs" / "assets" / "steering.svg").read_text("utf-8")
    early = [
        extract_words(row)
        for row in PASSING.findall(picture)
        if float(re.findall(r'begin="run.begin\+([\d.]+)s"', row)[0]) < 2
    ]
    assert any("4 running" in row for row in early)
    message = f"Message to explore (review journal): {cast.STEERING_MESSAGE}"
    assert message in extract_words(picture)
    assert "as you asked" in extract_words(
        picture
    ) and "less than without children" in extract_words(picture)


def test_five_children_land_after_a_conflict_and_a_red_check() -> None:
    picture = (ROOT / "docs" / "assets" / "merging.svg").read_text("utf-8")
    words = extract_words(picture)
    assert "5 tasks: 5 done" in words and "checking" in words
    assert "of 5 landed; 1 after a conflict, 1 after a red check; make test green" in words
