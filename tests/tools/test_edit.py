"""The tool edit: it writes the bytes that are meant, or changes nothing and says why.

`test_edit_property.py` generates files and edits: encodings, marks, line ends, line numbers and
foreign bytes. Here are the cases that it does not have, and the texts of refusals.
"""

from __future__ import annotations

import asyncio
import os
import stat
import unicodedata
from typing import Any

import pytest
from tests.tools.conftest import Call, Run

from mudroom._adapters.tools.edit import EDIT
from mudroom._core.tools import PreviewLine

DAMAGED = "# café 中文\nraw = '".encode() + b"\xff" + b"'\nname = 'y'\n"
"""UTF-8 with one byte that is not."""
NFD = unicodedata.normalize("NFD", "café")
ROWS = b"a = 1\nb = 2\n\nd = 4\n"
TABLE = b"1\tapple\n2\tpear\n3\tfig\n"
CASES: dict[str, list[tuple[str | bytes, str, str, str | bytes | None]]] = {
    "line numbers are never written": [
        (ROWS, "2\tb = 2", "2\tb = 2\n3\tc = 3", b"a = 1\nb = 2\nc = 3\n\nd = 4\n"),
        (ROWS, "  2\tb = 2\r\n", "b = 3\n", b"a = 1\nb = 3\n\nd = 4\n"),
        (ROWS, "2\tb = 2", "", b"a = 1\n\n\nd = 4\n"),
        (ROWS, "2\tb = 2", "7\tb = 3", None),
        (ROWS, "b = 2", "2\tb = 3", None),
        (ROWS, "b = 2\n\nd = 4", "2\tb = 3\n\n4\td = 5", None),
        (ROWS, "b = 2", "7\tb = 3", b"a = 1\n7\tb = 3\n\nd = 4\n"),
    ],
    "rows of a table are not numbered lines": [
        (TABLE, "9\tpear", "9\tplum", None),
        (TABLE, "3\tpear", "3\tplum", None),
        (TABLE, "2\tpear", "2\tplum", b"1\tapple\n2\tplum\n3\tfig\n"),
        (TABLE, "2\tpear", "2\tplum\n7\tkiwi", b"1\tapple\n2\tplum\n7\tkiwi\n3\tfig\n"),
        (TABLE, "2\t2\tpear", "2\t2\tplum", b"1\tapple\n2\tplum\n3\tfig\n"),
        (TABLE, "2\t2\tpear", "2\tplum", None),
        (TABLE, "2\t2\tpear", "2\t2\tplum\n3\tkiwi", None),
        (TABLE, "2\tpear", "2\t2\tplum", None),
        (TABLE, "pear", "2\tplum", None),
        (TABLE, "pear", "plum\n9\tkiwi", b"1\tapple\n2\tplum\n9\tkiwi\n3\tfig\n"),
    ],
    "look-alikes match and stay": [
        ("a\u00a0= 1\n", "a = 1", "a = 2", "a\u00a0= 2\n"),
        ("a\u200b = 1\n", "a = 1", "a = 2", "a\u200b = 2\n"),
        ("a = 1\n", "a\u00a0= 1", "a\u00a0= 2", "a = 2\n"),
        (f"x = '{NFD}'  # 1\n", "x = 'café'  # 1", "x = 'café'  # 2", f"x = '{NFD}'  # 2\n"),
        ("x = 'café'  # 1\n", f"x = '{NFD}'  # 1", f"x = '{NFD}'  # 2", "x = 'café'  # 2\n"),
        ("say “hi” – now\n", 'say "hi" - now', 'say "ho" - now', "say “ho” – now\n"),
        ("it’s\u2009so\n", "it's so", "it's so\nx", "it’s\u2009so\nx\n"),
        ("a\u00a0b\r\nc\n", "a b\nc", "a b\nd", "a\u00a0b\r\nd\n"),
        ("q\na\u00a0= 1\n", "2\ta = 1", "2\ta = 3", "q\na\u00a0= 3\n"),
    ],
    # Each from a report about another editor of files.
    "nothing else changes": [
        (
            b"// Copyright \xa9 Example. rights\r\nint main() { }\r\n",
            "rights\nint",
            "Rights — all\nint",
            b"// Copyright \xa9 Example. Rights \x97 all\r\nint main() { }\r\n",
        ),
        (
            "log(done);\n",
            "log(done);",
            "log($& $$ $1 $` \\1 \\g<0>);",
            "log($& $$ $1 $` \\1 \\g<0>);\n",
        ),
        ("s = 'a'\n", "'a'", "'a\\nb\\t'", "s = 'a\\nb\\t'\n"),
        ("#define A \\\n  1\n", "  1", "  2 \\\n  3", "#define A \\\n  2 \\\n  3\n"),
        (b"a\r\r\nb\r\r\n", "b", "c", b"a\r\r\nc\r\r\n"),
        ("┌─┐\n│x│\n└─┘\n", "│x│", "│y→│", "┌─┐\n│y→│\n└─┘\n"),
        ("\tif x:\n\t\ty = 1\n    z\n", "\t\ty = 1", "\t\ty = 2", "\tif x:\n\t\ty = 2\n    z\n"),
        (b"a  b\x0cc\x0bd\x1ce\n", "b", "B", b"a  B\x0cc\x0bd\x1ce\n"),
        ("a\u2028b\u0085c\n", "c", "d", "a\u2028b\u0085d\n"),
        (b"one", "one", "one\r\ntwo", b"one\r\ntwo"),
    ],
}


def encode(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


async def edit(run: Run, call: Call, before: bytes, old: str, new: str, **more: Any) -> str:
    """Edit a file; return the text of an error, else "". A refused call changes no byte."""
    (run.root / "f").write_bytes(before)
    result = await call("edit", file_path="f", old_string=old, new_string=new, **more)
    if result.error:
        assert (run.root / "f").read_bytes() == before
        return result.text
    return ""


@pytest.mark.parametrize(
    ("before", "old", "new", "after"), [case for cases in CASES.values() for case in cases]
)
async def test_an_edit_writes_what_is_meant_or_nothing(
    ctx: Run, call: Call, before: str | bytes, old: str, new: str, after: str | bytes | None
) -> None:
    refusal = await edit(ctx, call, encode(before), old, new)
    assert bool(refusal) == (after is None)
    assert (ctx.root / "f").read_bytes() == encode(before if after is None else after)
    assert before != ROWS or after is not None or "umber" in refusal


@pytest.mark.parametrize(
    ("before", "old", "new", "expected"),
    [
        ("k\na\u00a0= 1\n", "a = 1", "b == 1", "U+00A0 NO-BREAK SPACE in line 2, column 2"),
        ("a\u00a0b\na\u2009b\n", "a b", "a c", "2 places (lines 1, 2)"),
        ("a\u00a0b\na\u00a0b\n", "a b", "a c", "2 places"),
        (f"{NFD}\n", "cafe", "tea", "not in f"),
        (f"{NFD}\n", "caf", "ca", ""),
        ("apple\npear\n\n2\tpear\n", "2\tpear", "2\tplum", "without line numbers"),
        ("x\ny\nx\n", "x", "z", "2 times (lines 1, 3)"),
        ("a\nb\n-\na\r\nb\n", "a\nb", "c", "2 times"),
        ("a\r\nb\r\n", "a\r\nb", "a\nb", "keeps"),
        ("x", "", "x", "old_string: is empty"),
        ("x", "x", "x", "new_string: is the same as old_string"),
        (
            "\tif x:\n\t\ty = 1\n",
            "    if x:\n        y = 1",
            "z",
            "Only white space differs; lines 1-2 are:\n1\t\tif x:",
        ),
        (
            "import os\n\ndef f():\n    return 1\n",
            "def ff():\n    return 1",
            "x",
            "The nearest lines are:\n3\tdef f():\n4\t    return 1\nQuote them exactly",
        ),
        ("def f():\n", "@@@ !!! ???", "x", "Nothing in it is similar"),
    ],
)
async def test_a_refusal_says_what_differs(
    ctx: Run, call: Call, before: str, old: str, new: str, expected: str
) -> None:
    refusal = await edit(ctx, call, before.encode(), old, new)
    assert expected in refusal
    assert bool(refusal) == bool(expected)


async def test_foreign_bytes_are_found_and_kept_as_they_are_shown(ctx: Run, call: Call) -> None:
    (ctx.root / "f").write_bytes(DAMAGED)
    read = (await call("read", file_path="f")).text
    assert "2\traw = '\ufffd'\n" in read and "edit keeps them" in read
    assert "# café 中文" in (await call("read", file_path="f", limit=1)).text
    assert await edit(ctx, call, DAMAGED, "raw = '\ufffd'", "row = '\ufffd'") == ""
    assert (ctx.root / "f").read_bytes() == DAMAGED.replace(b"raw", b"row")
    assert "which ones" in await edit(ctx, call, DAMAGED, "'\ufffd'", "'\ufffd\ufffd'")
    assert await edit(ctx, call, DAMAGED, "'\ufffd'", "''") == ""
    assert (ctx.root / "f").read_bytes() == DAMAGED.replace(b"\xff", b"")
    two = "é = 'éé'\n".encode() + b"a = '\xff'\nb = '\xfe'\n"
    both = "a = '\ufffd'\nb = '\ufffd'"
    assert "which ones" in await edit(ctx, call, two, both, "b = '\ufffd'\na = '\ufffd'")
    assert await edit(ctx, call, two, both, "c = '\ufffd'\nb = '\ufffd'") == ""
    assert (ctx.root / "f").read_bytes() == two.replace(b"a =", b"c =")


async def test_several_places_are_chosen_by_number_or_replaced_together(
    ctx: Run, call: Call
) -> None:
    assert await edit(ctx, call, b"x\ny\nx\n", "3\tx", "3\tz") == ""
    assert (ctx.root / "f").read_bytes() == b"x\ny\nz\n"
    assert "replace_all" in await edit(ctx, call, b"x\ny\nx\n", "3\tx", "z", replace_all=True)
    (ctx.root / "f").write_bytes(b"x\ny\nx\n")
    result = await call("edit", path="f", old_text="x", new_text="z", replaceAll=True)
    assert (result.text, result.changes, result.error) == ("edited f (2 places)", ("f",), False)
    assert (ctx.root / "f").read_bytes() == b"z\ny\nz\n"
    # Places that differ only in their line ends are the same text.
    assert await edit(ctx, call, b"a\nb\n-\na\r\nb\n", "a\nb", "c\nb", replace_all=True) == ""
    assert (ctx.root / "f").read_bytes() == b"c\nb\n-\nc\r\nb\n"
    assert await edit(ctx, call, b"a  b  c\n", " ", "  ", replace_all=True) == ""
    assert (ctx.root / "f").read_bytes() == b"a    b    c\n"


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("4500", "5000", [("-", "2  retry = 4500  # ms"), ("+", "2  retry = 5000  # ms")]),
        ("retry = 4500  # ms\n", "", [("-", "2  retry = 4500  # ms"), (" ", "2  last")]),
        ("first\n", "1\n", [("-", "1  first"), ("+", "1  1")]),
        ("last", "end", [("-", "3  last"), ("+", "3  end")]),
        ("y", "t", [("-", "1  y"), ("+", "1  t")]),  # of a very long line, the replaced part
    ],
)
async def test_screens_show_whole_lines_of_an_edit(
    ctx: Run, call: Call, old: str, new: str, shown: list[PreviewLine]
) -> None:
    text = "x" * 10_000 + "y" if old == "y" else "first\nretry = 4500  # ms\nlast"
    (ctx.root / "a").write_text(text)
    arguments = {"file_path": "a", "old_string": old, "new_string": new}
    result = await call("edit", **arguments)
    assert EDIT.preview and EDIT.preview(arguments, result) == shown
    assert len(str(result.detail)) < 200
    assert result.text == f"edited a (line {shown[0][1].partition(' ')[0]})"


async def test_edit_and_write_keep_the_mode(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("x")
    os.chmod(ctx.root / "a", 0o711)
    await call("edit", file_path="a", old_string="x", new_string="y")
    await call("write", file_path="a", content="z")
    assert stat.S_IMODE(os.stat(ctx.root / "a").st_mode) == 0o711


async def test_parallel_edits_of_one_file_are_all_kept(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("".join(f"<{n}>\n" for n in range(30)))
    paths = ("a", str(ctx.root / "a"))
    edits = (
        call("edit", file_path=paths[n % 2], old_string=f"<{n}>", new_string=f"[{n}]")
        for n in range(30)
    )
    await asyncio.gather(*edits)
    assert (ctx.root / "a").read_text() == "".join(f"[{n}]\n" for n in range(30))


async def test_large_files_are_edited_in_bounded_time(ctx: Run, call: Call) -> None:
    many = 8_000
    similar = "".join(f"{n} {'abc' * 100}\n" for n in range(50_000))
    cases: list[tuple[bytes, str, str]] = [
        (b"a b\n" * many, "1\tx\n" * many, "y"),
        (b"x\n" * many, "1\tx", "1\ty"),
        (b"\t" * many, "1\t" * many, "y"),
        (b"a\r\nb\n" * many, "a\nb\n" * (many - 1), "c\nb\nd\n" * many),
        (("e" + "\u0301" * many).encode(), "é x", "y"),
        (b"a\n" * many, "  a\n" * many, "y"),
        ("Привет мир ".encode("cp1251") * many, "é", "y"),
        (b"\xff" * many * 10, "é", "y"),
        (similar.encode(), "\n".join(["cab" * 100] * 100), "x"),
    ]
    async with asyncio.timeout(60):
        for before, old, new in cases:
            assert len(await edit(ctx, call, before, old, new)) < 10_000
        assert await edit(ctx, call, b"x\r\ny\n" * many, "x\ny", "z\nw", replace_all=True) == ""
        assert (ctx.root / "f").read_bytes() == b"z\r\nw\n" * many
