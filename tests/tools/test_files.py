"""The tools read, write and edit on real files."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Any

import pytest
from tests.tools.conftest import Call, Run

from mudroom._adapters.tools.edit import EDIT
from mudroom._core.tools import PreviewLine


async def test_read_numbers_lines_and_reports_the_file(ctx: Run, call: Call) -> None:
    (ctx.root / "a.py").write_text("one\n\n\tthree\n")
    result = await call("read", file_path="a.py")
    assert result.text == "1\tone\n2\t\n3\t\tthree"
    assert result.reads == ("a.py",)
    assert (await call("read", path=f"{ctx.root}/a.py")).reads == ("a.py",)


async def test_read_names_the_next_offset(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("".join(f"{n}\n" for n in range(1, 5001)))
    whole = (await call("read", file_path="a")).text.splitlines()
    assert whole[1999:] == ["2000\t2000", "(lines 1-2000 of 5,000; continue with offset=2001)"]
    part = (await call("read", file_path="a", offset=4998, limit=2)).text
    assert part == "4998\t4998\n4999\t4999\n(lines 4998-4999 of 5,000; continue with offset=5000)"
    assert (await call("read", file_path="a", offset=5000)).text == "5000\t5000"


@pytest.mark.parametrize(
    ("first", "count"), [(1, 1), (9, 3), (98, 4), (999, 3), (1_995, 5), (1_999, 2), (1_999, 4)]
)
async def test_read_numbers_any_range_of_lines(
    ctx: Run, call: Call, first: int, count: int
) -> None:
    lines = [f"%s {number} %" for number in range(1, 3_001)]
    (ctx.root / "a").write_text("\n".join(lines))
    text = (await call("read", file_path="a", offset=first, limit=count)).text
    numbers = range(first, first + count)
    assert text.splitlines()[:-1] == [f"{number}\t{lines[number - 1]}" for number in numbers]


async def test_an_empty_file_and_an_offset_past_the_end_have_notices(ctx: Run, call: Call) -> None:
    (ctx.root / "empty").write_text("")
    (ctx.root / "short").write_text("one\ntwo")
    assert (await call("read", file_path="empty")).text == "(empty is empty)"
    past = await call("read", file_path="short", offset=3)
    assert past.text == "(short has 2 lines; offset 3 is past its end)"
    assert not past.error


async def test_long_lines_are_cut_and_the_rest_of_the_file_is_read(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("é" * 100_000 + "\nnext\n" + "z" * 2_001)
    rows = (await call("read", file_path="a")).text.splitlines()
    assert rows[0] == "1\t" + "é" * 2_000 + " [line cut]"
    assert rows[1] == "2\tnext"
    assert rows[2] == "3\t" + "z" * 2_000 + " [line cut]"


async def test_the_result_of_read_is_bounded(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text(("x" * 1_900 + "\n") * 3_000)
    text = (await call("read", file_path="a")).text
    assert len(text) <= 50_000
    last = int(text.splitlines()[-2].split("\t")[0])
    assert text.endswith(f"(lines 1-{last} of 3,000; continue with offset={last + 1})")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "PNG image"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "PDF document"),
        (b"PK\x03\x04", "ZIP archive"),
        (b"ab\0cd", "binary file"),
    ],
)
async def test_binary_files_are_described(ctx: Run, call: Call, data: bytes, kind: str) -> None:
    (ctx.root / "a").write_bytes(data)
    result = await call("read", file_path="a")
    assert result.error
    assert f"a is a {kind} of {len(data)} bytes" in result.text


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\xef\xbb\xbfbom\n", "1\tbom"),
        ("wide é\nzwei\n".encode("utf-16"), "1\twide é\n2\tzwei\n(UTF-16-LE)"),
        (b"\xfe\xff" + "wide".encode("utf-16-be"), "1\twide\n(UTF-16-BE)"),
        ("caf\xe9\n".encode("latin-1"), "1\tcafé\n(not UTF-8, but Windows-1252)"),
        (b"dos\r\nends\r\n", "1\tdos\n2\tends"),
    ],
)
async def test_encodings(ctx: Run, call: Call, data: bytes, shown: str) -> None:
    (ctx.root / "a").write_bytes(data)
    assert (await call("read", file_path="a")).text == shown


async def test_the_result_of_read_is_valid_text(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_bytes(b"text\n" * 2_000 + bytes(range(256)))
    text = (await call("read", file_path="a", offset=1990)).text
    assert text.encode() and "\0" not in text


async def test_48_a_sparse_file_of_50_gb_is_bounded(ctx: Run, call: Call) -> None:
    with open(ctx.root / "sparse", "wb") as file:
        file.truncate(50 << 30)
    with open(ctx.root / "text", "wb") as file:
        file.write(b"line\n" * 10_000)
        file.truncate(50 << 30)
    async with asyncio.timeout(60):
        assert (
            "binary file of 53,687,091,200 bytes" in (await call("read", file_path="sparse")).text
        )
        assert (await call("read", file_path="text")).text.endswith(
            "(lines 1-2000; continue with offset=2001)"
        )
        assert (await call("edit", file_path="text", old_string="line", new_string="x")).error


async def test_reading_a_folder_names_the_tool_that_lists_it(ctx: Run, call: Call) -> None:
    (ctx.root / "src").mkdir()
    result = await call("read", file_path="src")
    assert result.error
    assert result.text == "src is a folder. List it with glob: pattern '*', path 'src'."


async def test_paths_outside_are_refused_with_a_remedy(call: Call) -> None:
    for name, arguments in (
        ("read", {}),
        ("write", {"content": "x"}),
        ("edit", {"old_string": "a", "new_string": "b"}),
    ):
        result = await call(name, file_path="/etc/passwd", **arguments)
        assert result.error
        assert "is outside the workspace" in result.text
        assert "Use a path inside" in result.text


async def test_a_spill_file_is_read_with_offset_and_limit(ctx: Run, call: Call) -> None:
    (ctx.spills / "long").write_text("one\ntwo\nthree\n")
    assert (
        await call("read", file_path=str(ctx.spills / "long"), offset=2, limit=1)
    ).text.startswith("2\ttwo\n")


async def test_write_tells_created_from_overwritten(ctx: Run, call: Call) -> None:
    made = await call("write", file_path="a/b/c.py", content="one\ntwo\n")
    assert (made.text, made.changes) == ("created a/b/c.py (2 lines)", ("a/b/c.py",))
    assert (await call("write", path="a/b/c.py", text="one")).text == "overwrote a/b/c.py (1 line)"
    assert (ctx.root / "a/b/c.py").read_text() == "one"


async def test_write_keeps_crlf_and_mode(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_bytes(b"one\r\ntwo\r\n")
    os.chmod(ctx.root / "a", 0o750)
    await call("write", file_path="a", content="three\nfour\r\n")
    assert (ctx.root / "a").read_bytes() == b"three\r\nfour\r\n"
    assert stat.S_IMODE(os.stat(ctx.root / "a").st_mode) == 0o750
    (ctx.root / "mixed").write_bytes(b"one\r\ntwo\n")
    await call("write", file_path="mixed", content="three\n")
    assert (ctx.root / "mixed").read_bytes() == b"three\n"


@pytest.mark.parametrize("path", ["src/", "a/b//", "./"])
async def test_write_makes_no_file_for_the_path_of_a_folder(
    ctx: Run, call: Call, path: str
) -> None:
    assert "name a file" in (await call("write", file_path=path, content="x")).text
    assert not os.listdir(ctx.root)


async def test_write_refuses_half_a_character(call: Call) -> None:
    assert "surrogate" in (await call("write", file_path="a", content="x\ud800")).text


async def test_edit_replaces_one_exact_place(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("one\ntwo\nthree\n")
    result = await call("edit", path="a", old_text="two", new_text="2")
    assert (result.text, result.changes, result.error) == ("edited a (line 2)", ("a",), False)
    assert (ctx.root / "a").read_text() == "one\n2\nthree\n"


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("4500", "5000", [("-", "2  retry = 4500  # ms"), ("+", "2  retry = 5000  # ms")]),
        ("retry = 4500  # ms\n", "", [("-", "2  retry = 4500  # ms"), (" ", "2  last")]),
        ("first\n", "1\n", [("-", "1  first"), ("+", "1  1")]),
        ("last", "end", [("-", "3  last"), ("+", "3  end")]),
    ],
)
async def test_screens_show_whole_lines_of_an_edit(
    ctx: Run, call: Call, old: str, new: str, shown: list[PreviewLine]
) -> None:
    (ctx.root / "a").write_text("first\nretry = 4500  # ms\nlast")
    arguments = {"file_path": "a", "old_string": old, "new_string": new}
    result = await call("edit", **arguments)
    assert EDIT.preview
    assert EDIT.preview(arguments, result) == shown


async def test_an_edit_of_a_very_long_line_shows_the_replaced_part(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("x" * 10_000 + "y")
    arguments = {"file_path": "a", "old_string": "y", "new_string": "z"}
    result = await call("edit", **arguments)
    assert EDIT.preview
    assert EDIT.preview(arguments, result) == [("-", "1  y"), ("+", "1  z")]
    assert len(str(result.detail)) < 100


async def test_edit_of_an_ambiguous_text_names_the_lines(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("x\ny\nx\n")
    result = await call("edit", file_path="a", old_string="x", new_string="z")
    assert result.error
    assert "2 times (lines 1, 3)" in result.text
    assert (
        await call("edit", file_path="a", old_string="x", new_string="z", replaceAll=True)
    ).text == "edited a (2 places)"
    assert (ctx.root / "a").read_text() == "z\ny\nz\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("", "x", "old_string: is empty"), ("x", "x", "new_string: is the same as old_string")],
)
async def test_edit_refuses_what_changes_nothing(
    ctx: Run, call: Call, old: str, new: str, expected: str
) -> None:
    (ctx.root / "a").write_text("x")
    assert (await call("edit", file_path="a", old_string=old, new_string=new)).text.startswith(
        expected
    )


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"one\r\ntwo\r\n", "one\ntwo", "1\n2\n3", b"1\r\n2\r\n3\r\n"),
        (b"one\r\ntwo\r\n", "one\r\ntwo", "1\r\n2", b"1\r\n2\r\n"),
        (b"one\r\ntwo\nthree\n", "two", "2", b"one\r\n2\nthree\n"),
        (b"one\r\ntwo\r\nthree\n", "one\ntwo", "1\n2", b"1\r\n2\r\nthree\n"),
        (b"\xef\xbb\xbfone\n", "one", "1", b"\xef\xbb\xbf1\n"),
        (b"caf\xe9\n", "café", "thé", b"th\xe9\n"),
        ("wide\n".encode("utf-16"), "wide", "w", "w\n".encode("utf-16")),
    ],
)
async def test_edit_keeps_line_ends_marks_and_encodings(
    ctx: Run, call: Call, before: bytes, old: str, new: str, after: bytes
) -> None:
    (ctx.root / "a").write_bytes(before)
    result = await call("edit", file_path="a", old_string=old, new_string=new)
    assert not result.error, result.text
    assert (ctx.root / "a").read_bytes() == after


async def test_edit_keeps_the_mode(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("x")
    os.chmod(ctx.root / "a", 0o711)
    await call("edit", file_path="a", old_string="x", new_string="y")
    assert stat.S_IMODE(os.stat(ctx.root / "a").st_mode) == 0o711


async def test_edit_removes_line_numbers_when_every_line_has_one(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("def f():\n\treturn 1\n")
    await call(
        "edit",
        file_path="a",
        old_string="1\tdef f():\n2\t\treturn 1\n",
        new_string="1\tdef g():\n2\t\treturn 2\n",
    )
    assert (ctx.root / "a").read_text() == "def g():\n\treturn 2\n"
    await call("edit", file_path="a", old_string="2\t\treturn 2", new_string="\treturn 3")
    assert (ctx.root / "a").read_text() == "def g():\n\treturn 3\n"


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (
            "def f():\n        return 1",
            "Only white space differs; lines 3-4 are:\n3\tdef f():\n4\t    return 1",
        ),
        (
            "def ff():\n    return 1",
            "The nearest lines are:\n3\tdef f():\n4\t    return 1\nQuote them exactly",
        ),
        ("@@@ !!! ???", "Nothing in it is similar"),
    ],
)
async def test_edit_shows_similar_lines(ctx: Run, call: Call, old: str, expected: str) -> None:
    (ctx.root / "a").write_text("import os\n\ndef f():\n    return 1\n")
    result = await call("edit", file_path="a", old_string=old, new_string="x")
    assert result.error
    assert expected in result.text


async def test_edit_finds_similar_lines_in_bounded_time(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("".join(f"{n} {'abc' * 100}\n" for n in range(50_000)))
    async with asyncio.timeout(60):
        result = await call(
            "edit",
            file_path="a",
            old_string="\n".join("cab" * 100 for _ in range(100)),
            new_string="x",
        )
    assert result.error
    assert len(result.text) < 10_000


async def test_parallel_edits_of_one_file_are_all_kept(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("".join(f"<{n}>\n" for n in range(30)))
    arguments: list[dict[str, Any]] = [
        {
            "file_path": str(ctx.root / "a") if n % 2 else "a",
            "old_string": f"<{n}>",
            "new_string": f"[{n}]",
        }
        for n in range(30)
    ]
    async with asyncio.TaskGroup() as group:
        for one in arguments:
            group.create_task(call("edit", **one))  # pyright: ignore[reportArgumentType]
    assert (ctx.root / "a").read_text() == "".join(f"[{n}]\n" for n in range(30))
