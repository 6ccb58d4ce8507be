"""Random files and random edits as models send them: the bytes are right, or nothing changed.

The reference puts byte strings together: it knows which lines it keeps, changes, adds and removes.
"""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mudroom._adapters.tools.text.file_changes import TextEdit, edit_file, propose_edit
from mudroom._adapters.workspaces.shared import SharedWorkspace

from ..long_form import count_examples

SEEDS = 40
EXAMPLES = count_examples(40, 1_000)
"""Edits of one seed."""

ENDS = {"lf": [b"\n"], "crlf": [b"\r\n"], "cr": [b"\r"], "mixed": [b"\n", b"\r\n", b"\n"]}


@dataclass(frozen=True)
class Kind:
    """A kind of file. `sure`: a first line that tells the encoding; `texts`: what lines have."""

    codec: str
    sure: str
    texts: tuple[str, ...]
    new: tuple[str, ...]
    bom: bytes = b""
    foreign: bytes = b""
    refused: tuple[str, ...] = ()


WEST = ("café", "naïve — “so”", "Größe", "plain", "a > b")
KINDS = {
    "utf-8": Kind("utf-8", "# start", (*WEST, "中文", "😀", "日本"), ("ø", "变量", "—", "ok")),
    "ascii": Kind("utf-8", "# start", ("plain", "x = 'y'", ""), ("ø", "变量", "ok")),
    "marked": Kind("utf-8", "# start", WEST, ("变量", "ok"), b"\xef\xbb\xbf"),
    "look-alike": Kind(
        "utf-8",
        "# start",
        ("a\u00a0= 1", "it’s “so”", "zero\u200bwidth", unicodedata.normalize("NFD", "café é")),
        ("ø", "ok"),
    ),
    "foreign": Kind(
        "utf-8", "# 这是中文注释，很长", (*WEST, "plain"), ("ø", "ok"), foreign=b"'\xff'"
    ),
    "utf-16-le": Kind("utf-16-le", "# start", (*WEST, "中文"), ("变量", "ok"), b"\xff\xfe"),
    "utf-16-be": Kind("utf-16-be", "# start", (*WEST, "中文"), ("变量", "ok"), b"\xfe\xff"),
    "bare utf-16": Kind("utf-16-le", "# start", (*WEST, "中文"), ("变量", "ok")),
    "cp1252": Kind("cp1252", "# café déjà été", WEST, ("—", "ø", "ok"), refused=("变", "😀")),
    "gbk": Kind(
        "gbk",
        "# 这是一个测试文件的注释",
        ("中文", "变量 = 值", "plain"),
        ("错误", "ok"),
        refused=("😀",),
    ),
    "cp932": Kind(
        "cp932",
        "# これは日本語のテストです",
        ("表示", "ソフト", "x"),
        ("データ", "ok"),
        refused=("变",),
    ),
    "unknown": Kind(
        "cp1251", "# Это комментарий к файлу", ("привет", "plain"), ("ok",), refused=("é", "—", "я")
    ),
    "table": Kind("utf-8", "id\tname", ("apple", "pear", "café"), ("fig",)),
}


@dataclass
class File:
    """A file as lines of bytes, each with its own end, and as a model sees it."""

    kind: Kind
    rows: list[bytes]
    ends: list[bytes]

    def encode(self, text: str) -> bytes:
        return text.encode(self.kind.codec)

    def show(self, row: bytes) -> str:
        if self.kind.codec == "cp1251":
            return row.decode("latin-1")
        return row.decode(self.kind.codec, "replace")

    def join(self, rows: list[bytes], ends: list[bytes]) -> bytes:
        wide = [self.encode(end.decode()) for end in ends]
        return self.kind.bom + b"".join(a + b for a, b in zip(rows, wide, strict=True))


@dataclass
class Edit:
    """An edit: what the model sends, and the bytes that it means."""

    old: list[str]
    new: list[str]
    numbers: list[int | None]
    meant: bytes
    first: int
    must_succeed: bool = True
    must_fail: bool = False


def make_file(chance: random.Random, name: str) -> File:
    kind = KINDS[name]
    rows = [kind.sure.encode(kind.codec)]
    for number in range(chance.randrange(3, 12)):
        text = chance.choice(kind.texts)
        if name == "table":
            text = f"{number + chance.choice([0, 2, 100])}\t{text}{number}"
        elif chance.random() < 0.15:
            text = ""
        elif chance.random() < 0.05:
            text = f"v{number}_ = " + "z" * 9_000 + text
        else:
            text = f"{chance.choice(['', '    ', chr(9)])}v{number}_ = {text}"
        row = text.encode(kind.codec)
        if kind.foreign and text and chance.random() < 0.4:
            row += kind.foreign
        rows.append(row)
    choices = ENDS[chance.choice(list(ENDS))]
    ends = [chance.choice(choices) for _ in rows]
    if chance.random() < 0.3:
        ends[-1] = b""
    return File(kind, rows, ends)


def make_edit(chance: random.Random, file: File) -> Edit:
    """Change, add or remove a line between `first` and `last`."""
    first = chance.randrange(1, len(file.rows))
    last = min(len(file.rows), first + chance.randrange(1, 5)) - 1
    whole = bool(file.ends[last]) and chance.random() < 0.3
    place = chance.randrange(first, last + 1)
    rows, ends = file.rows[:], file.ends[:]
    shown = [file.show(row) for row in rows]
    numbers: list[int | None] = [number + 1 for number in range(first, last + 1)]
    new = shown[first : last + 1]
    index = place - first
    refused = bool(file.kind.refused) and chance.random() < 0.2
    word = chance.choice(file.kind.refused if refused else file.kind.new)
    action = chance.choice(["change", "add", "remove"])
    if action == "change" or (action == "remove" and (refused or not whole or not rows[place])):
        action = "change"
        added = f" # {word}"
        rows[place] += b"" if refused else file.encode(added)
        new[index] += added
    elif action == "add":
        added = f"new {word}"
        end = ends[place] or (ends[place - 1] if place else b"\n")
        rows.insert(place + 1, b"" if refused else file.encode(added))
        ends.insert(place + 1, ends[place])
        ends[place] = end
        new.insert(index + 1, added)
        numbers.insert(index + 1, None)
    else:
        del rows[place], ends[place], new[index], numbers[index]
    old = shown[first : last + 1]
    unique = any(row.strip() for row in old)
    result = Edit(old, new, numbers, file.join(rows, ends), first + 1, must_fail=refused)
    if whole:
        result.old = [*old, ""]
        result.new = [*new, ""]
        result.numbers.append(None)
    result.must_succeed = unique and not refused
    return result


def send_plainly(chance: random.Random, edit: Edit, first: int) -> None:
    """Send the text as it is shown."""


def send_numbers(chance: random.Random, edit: Edit, first: int) -> None:
    """Send line numbers of `read`: of all lines or some; on new lines as well, or not."""
    if any(row.lstrip(" ")[:1].isdigit() for row in edit.old):
        edit.must_succeed = False  # rows of a table: refused where it is not clear
    keep = chance.random() < 0.5
    old = [
        f"{first + n}\t{row}" if (row or keep) and (n or chance.random() < 0.8) else row
        for n, row in enumerate(edit.old)
    ]
    if old[-1].endswith("\t") and not edit.old[-1]:
        old[-1] = ""
    new = [
        f"{number}\t{row}" if number and (row or keep) and chance.random() < 0.8 else row
        for number, row in zip(edit.numbers, edit.new, strict=True)
    ]
    if old == edit.old:
        edit.must_succeed = edit.must_succeed and new == edit.new
    edit.old, edit.new = old, new


def send_wrong_numbers(chance: random.Random, edit: Edit, first: int) -> None:
    """Send numbers of other lines: from an older state of the file."""
    shift = chance.choice([-1, 1, 7])
    edit.old = [f"{max(first + n + shift, 0)}\t{row}" for n, row in enumerate(edit.old)]
    edit.must_fail = edit.must_succeed or edit.must_fail  # blank lines may be there, too


def send_other_ends(chance: random.Random, edit: Edit, first: int) -> None:
    end = chance.choice(["\r\n", "\r"])
    edit.old, edit.new = [end.join(edit.old)], [end.join(edit.new)]


def send_normal_forms(chance: random.Random, edit: Edit, first: int) -> None:
    form = "NFC" if chance.random() < 0.5 else "NFD"
    rows = [unicodedata.normalize(form, row) for row in (*edit.old, *edit.new)]
    changed = rows != [*edit.old, *edit.new]
    edit.old, edit.new = rows[: len(edit.old)], rows[len(edit.old) :]
    edit.must_succeed = edit.must_succeed and not changed


SIMPLE = str.maketrans({"\u00a0": " ", "’": "'", "“": '"', "”": '"', "—": "-", "\u200b": ""})


def send_simple_characters(chance: random.Random, edit: Edit, first: int) -> None:
    old = [row.translate(SIMPLE) for row in edit.old]
    kept = dict(zip(edit.old, old, strict=True))
    new = [kept.get(row, row) for row in edit.new]
    for n, row in enumerate(new):  # the line that was changed: its start is simple, too
        for before, simple in kept.items():
            if before and row.startswith(before):
                new[n] = simple + row[len(before) :]
    if old != edit.old:
        edit.must_succeed = False
    edit.old, edit.new = old, new


def send_other_white_space(chance: random.Random, edit: Edit, first: int) -> None:
    how: Callable[[str], str] = chance.choice(
        [lambda row: row + " ", lambda row: "  " + row, lambda row: row.replace(" = ", "  = ")]
    )
    old = [how(row) for row in edit.old]
    edit.must_fail = old != edit.old and any(row.strip() for row in edit.old)
    edit.must_succeed = edit.must_succeed and old == edit.old
    edit.old = old


SENDERS = [
    send_plainly,
    send_numbers,
    send_wrong_numbers,
    send_other_ends,
    send_normal_forms,
    send_simple_characters,
    send_other_white_space,
]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_edit_writes_the_bytes_that_are_meant_or_none(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    workspace = SharedWorkspace(str(tmp_path))
    counts: Counter[str] = Counter()
    for _ in range(EXAMPLES):
        name = chance.choice(list(KINDS))
        file = make_file(chance, name)
        one = make_edit(chance, file)
        send = chance.choice(SENDERS)
        send(chance, one, one.first)
        if chance.random() < 0.3:
            send_other_ends(chance, one, one.first)
        before = file.join(file.rows, file.ends)
        (tmp_path / "f").write_bytes(before)
        old, new = "\n".join(one.old), "\n".join(one.new)
        if not "".join(one.old).strip("\t\r\n 0123456789") or old == new:
            continue  # blank lines alone: one is as good as another
        result = edit_file(workspace, TextEdit("f", old, new))
        after = (tmp_path / "f").read_bytes()
        story = (
            f"{name}, {send.__name__}: {before!r}\n{old!r}\n-> {new!r}\n{result.text}\n{after!r}"
        )
        if result.error:
            assert after == before, story
            assert not one.must_succeed or one.must_fail, story
        else:
            assert not one.must_fail, story
            assert after == one.meant, f"{story}\nmeant {one.meant!r}"
        counts[f"{send.__name__} {'refused' if result.error else 'written'}"] += 1
    print(dict(sorted(counts.items())))
    assert counts["send_plainly written"] > counts["send_plainly refused"]


@pytest.mark.parametrize("seed", range(8))
def test_edits_in_one_call_are_made_one_after_another_or_not_at_all(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    workspace = SharedWorkspace(str(tmp_path))
    alone, together = tmp_path / "alone", tmp_path / "together"
    outcomes: Counter[bool] = Counter()
    for _ in range(count_examples(25, 1_000)):
        text = "".join(chance.choices(["a", "b", "ab", "é", "\n", "\r\n"], k=16))
        parts = ["a", "b", "ab", "é", "a\n", "c"]
        pairs = [chance.sample(parts, 2) for _ in range(chance.randrange(2, 4))]
        edits = [(old, new, chance.random() < 0.9) for old, new in pairs]
        alone.write_bytes(text.encode())
        together.write_bytes(text.encode())
        refused = False
        for edit in edits:
            refused = refused or edit_file(workspace, TextEdit("alone", *edit)).error
        proposed = propose_edit(workspace, *(TextEdit("together", *edit) for edit in edits))
        result = edit_file(workspace, *(TextEdit("together", *edit) for edit in edits))
        is_unchanged = together.read_bytes() == text.encode()
        if refused:
            assert is_unchanged and result.error, (text, edits)
            assert not proposed
        elif not result.error:
            assert together.read_bytes() == alone.read_bytes(), (text, edits)
        else:  # the edits undo each other
            assert alone.read_bytes() == text.encode() and is_unchanged, (text, edits)
        outcomes[result.error] += 1
    assert min(outcomes[True], outcomes[False]) > 2, outcomes
