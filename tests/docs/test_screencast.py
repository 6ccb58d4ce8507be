"""The animated picture of the demo: terminal bytes at their real speed."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from tests.docs.conftest import load_script

ROOT = Path(__file__).parents[2]
PASSING = re.compile(r'<g visibility="hidden">.*?</g>')


@pytest.fixture(scope="module")
def cast() -> ModuleType:
    return load_script("screencast")


def extract_words(picture: str) -> str:
    return re.sub(r"<[^>]*>", "", picture).replace("\u00a0", " ").strip()


def test_a_row_is_visible_as_long_as_it_was_on_the_screen(cast: ModuleType) -> None:
    written = [
        (0.0, "one\r\n0%"),
        (0.5, "one\r\n0%\r\x1b[K50%"),
        (1.0, "one\r\n0%\r\x1b[K50%\r\x1b[K\x1b[32mdone\x1b[0m"),
    ]
    picture = cast.draw_svg([(at, cast.render_screen(text)) for at, text in written], "one")
    assert [extract_words(each) for each in PASSING.findall(picture)] == ["50%", "done"]
    assert re.findall(
        r'to="(\w+)" begin="run.begin\+([^"]+)" end="run.begin\+([^"]+)"', picture
    ) == [
        ("hidden", "0.5s", "6.0s"),
        ("visible", "0.5s", "1.0s"),
        ("visible", "1.0s", "6.0s"),
    ]
    assert picture.count(">one<") == 1 and cast.COLORS["32"] in picture


def test_a_still_preview_shows_the_first_screen(cast: ModuleType) -> None:
    frames = [
        (1.0, cast.render_screen("$ go\r\nstarting")),
        (3.0, cast.render_screen("$ go\r\n\x1b[K2 children")),
        (4.0, cast.render_screen("$ go\r\n\x1b[Kall done\r\nledger")),
    ]
    picture = cast.draw_svg(cast.start_where(frames, "children"), "go")
    assert extract_words(PASSING.sub("", picture)).split("\n") == ["$ go", "2 children"]
    assert 'begin="run.begin+1.0s"' in picture, "the recording begins with the children"


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


@pytest.mark.parametrize("name", ["steering", "merging"])
def test_the_pictures_are_animated_and_small(name: str) -> None:
    picture = (ROOT / "docs" / "assets" / f"{name}.svg").read_text("utf-8")
    assert len(PASSING.findall(picture)) > 20 and len(picture) < 200_000
    assert 'begin="0s;run.end"' in picture, "it plays again"
    ElementTree.fromstring(picture)  # a control character makes the picture unreadable


def read_first_frame(name: str) -> str:
    """Return the words of a picture that no animation hides."""
    picture = (ROOT / "docs" / "assets" / f"{name}.svg").read_text("utf-8")
    return extract_words(PASSING.sub("", picture))


def test_the_first_frame_of_the_front_page_is_the_tree_of_four_children(cast: ModuleType) -> None:
    first = read_first_frame("steering")
    assert "4 tasks: 4 running" in first and first.count("explore") == 4
    assert "5 tasks: 5 running" in read_first_frame("merging")
    picture = (ROOT / "docs" / "assets" / "steering.svg").read_text("utf-8")
    (width,) = re.findall(r'viewBox="0 0 (\d+) \d+"', picture)
    assert 13 * 358 / int(width) > 9, "pixels of a letter on a page that is 390 wide"
    rows = len(first.split("\n"))
    assert rows > 0.6 * cast.STEERING_ROWS, "the frame is mostly empty"


def test_one_child_gets_a_message_and_the_ledger_ends_the_recording(cast: ModuleType) -> None:
    words = extract_words((ROOT / "docs" / "assets" / "steering.svg").read_text("utf-8"))
    assert f"Message to explore (review journal): {cast.STEERING_MESSAGE}" in words
    assert "as you asked" in words and "less than without children" in words.replace("\n", " ")


def test_the_recording_on_the_front_page_is_of_these_files(cast: ModuleType) -> None:
    """Lines that the children read, as the picture says and as the files have them now."""
    model = runpy.run_path(str(ROOT / "scripts" / "steering_model"))
    files = [name for part in model["PARTS"].values() for name in part]
    texts = [(ROOT / "src" / "mudroom" / name).read_text("utf-8") for name in files]
    words = extract_words((ROOT / "docs" / "assets" / "steering.svg").read_text("utf-8"))
    shown = re.search(r"4 children read ([\d,]+) lines", words)
    assert shown, "run make pictures"
    lines = sum(text.count("\n") for text in texts)
    assert cast.is_near(int(shown[1].replace(",", "")), lines), "stale: run make pictures"


def test_five_children_land_after_a_conflict_and_a_red_check() -> None:
    picture = (ROOT / "docs" / "assets" / "merging.svg").read_text("utf-8")
    words = extract_words(picture)
    assert "5 tasks: 5 done" in words and "checking" in words
    assert "of 5 landed; 1 after a conflict, 1 after a red check; make test green" in words
