"""Read, edit and write change the bytes that were meant, in any encoding, or refuse."""

from __future__ import annotations

import asyncio
import unicodedata
from typing import Any

import pytest
from tests.tools.conftest import Call, Run

from mudroom._adapters.tools.text.encodings import detect_encoding

MIXED = "# café 中文\nraw = '\xff'\nname = 'y'\n"
DAMAGED = "# café 中文\nraw = '".encode() + b"\xff" + b"'\nname = 'y'\n"
"""UTF-8 with one byte that is not."""


async def edit(run: Run, call: Call, before: bytes, old: str, new: str, **more: Any) -> str:
    """Edit a file; return the text of an error, else "". A refused call changes no byte."""
    (run.root / "f").write_bytes(before)
    result = await call("edit", file_path="f", old_string=old, new_string=new, **more)
    if result.error:
        assert (run.root / "f").read_bytes() == before
        return result.text
    return ""


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp1252", "# café\nx = 1\n"),
        ("cp1252", "It’s “naïve” — déjà vu\n"),
        ("cp1252", "Größe, süß, für\n"),
        ("cp1252", "¿Qué? ¡Señor!\n"),
        ("gbk", "# 注释\nx = 1\n"),
        ("gbk", "# 中文\n"),
        ("gbk", 'print("错误：文件不存在")\n'),
        ("gbk", "“引号”\n"),
        ("cp932", "# 日本語\n"),
        ("cp932", "表示するデータ\n"),
        ("utf-16-le", "# café\n"),
        ("utf-16-be", "# 中文\nname = 1\n"),
    ],
)
async def test_an_encoding_that_can_be_told_is_kept(
    ctx: Run, call: Call, codec: str, text: str
) -> None:
    data = text.encode(codec)
    first = text.split("\n")[0]
    (ctx.root / "f").write_bytes(data + "last\n".encode(codec) * 3_000)
    for arguments in ({}, {"limit": 1}):
        read = await call("read", file_path="f", **arguments)
        assert read.text.startswith(f"1\t{first}\n")
    assert await edit(ctx, call, data, first, f"{first} {first}") == ""
    assert (ctx.root / "f").read_bytes().decode(codec) == text.replace(first, f"{first} {first}")
    written = await call("write", file_path="f", content=f"{first}!\n")
    assert (ctx.root / "f").read_bytes() == f"{first}!\n".encode(codec)
    assert "as before" in written.text


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp1251", "# Привет, мир\n"),
        ("cp1251", "да и нет\n"),
        ("cp1251", "ПРИВЕТ\n"),
        ("koi8-r", "привет\n"),
        ("koi8-r", "# Функция возвращает\n"),
        ("cp866", "Привет\n"),
        ("big5", "中文測試\n"),
        ("euc_kr", "한국어 파일\n"),
        ("euc_kr", "# 주석\n"),
        ("euc_jp", "日本語\n"),
        ("cp1250", "příliš žluťoučký\n"),
        ("cp1254", "değişken\n"),
        ("cp1253", "Γειά σου\n"),
        ("cp1255", "שלום עולם\n"),
        ("cp1256", "مرحبا\n"),
        ("cp874", "สวัสดี\n"),
        ("cp850", "café für\n"),
        ("mac_roman", "café\n"),
        ("iso2022_jp", "日本語\n"),
        ("hz", "中文文件\n"),
        ("utf-7", "日本語 café\n"),
    ],
)
async def test_an_encoding_that_cannot_be_told_takes_only_ascii(
    ctx: Run, call: Call, codec: str, text: str
) -> None:
    data = f"{text}x = 1\n".encode(codec)
    refusal = await edit(ctx, call, data, "x = 1", "x = 'é'")
    assert "encoding of the file cannot be told" in refusal and "iconv" in refusal
    assert await edit(ctx, call, data, "x = 1", "y = 22") == ""
    assert (ctx.root / "f").read_bytes() == f"{text}y = 22\n".encode(codec)
    shown = (await call("read", file_path="f", limit=1)).text.split("\n")[0].removeprefix("1\t")
    assert await edit(ctx, call, data, f"{shown}\nx = 1", f"{shown}\ny = 2") == ""
    assert (ctx.root / "f").read_bytes() == f"{text}y = 2\n".encode(codec)
    (ctx.root / "f").write_bytes(data)
    assert "cannot be told" in (await call("write", file_path="f", content="é")).text
    assert (ctx.root / "f").read_bytes() == data


async def test_half_of_a_character_is_not_replaced_where_the_encoding_is_unknown(
    ctx: Run, call: Call
) -> None:
    data = "蓋 / 許\\\n".encode("big5")  # the second byte of two of these is a backslash
    assert data.count(b"\\") == 3
    assert "cannot be told" in await edit(ctx, call, data, "\\", "/", replace_all=True)


@pytest.mark.parametrize("new", ["naïve", "变量", "—"])
async def test_a_foreign_byte_does_not_change_the_encoding(ctx: Run, call: Call, new: str) -> None:
    assert await edit(ctx, call, DAMAGED, "name = 'y'", f"name = '{new}'") == ""
    assert (ctx.root / "f").read_bytes() == DAMAGED.replace(b"'y'", f"'{new}'".encode())
    for arguments in ({"limit": 1}, {}):
        assert "# café 中文" in (await call("read", file_path="f", **arguments)).text


async def test_foreign_bytes_are_found_and_kept_as_they_are_shown(ctx: Run, call: Call) -> None:
    (ctx.root / "f").write_bytes(DAMAGED)
    read = (await call("read", file_path="f")).text
    assert "2\traw = '\ufffd'\n" in read and "edit keeps them" in read
    assert await edit(ctx, call, DAMAGED, "raw = '\ufffd'", "row = '\ufffd'") == ""
    assert (ctx.root / "f").read_bytes() == DAMAGED.replace(b"raw", b"row")
    assert "which ones" in await edit(ctx, call, DAMAGED, "'\ufffd'", "'\ufffd\ufffd'")
    assert await edit(ctx, call, DAMAGED, "'\ufffd'", "''") == ""
    assert (ctx.root / "f").read_bytes() == DAMAGED.replace(b"\xff", b"")
    two = "é = 'éé'\n".encode() + b"a = '\xff'\nb = '\xfe'\n"
    swapped = await edit(ctx, call, two, "a = '\ufffd'\nb = '\ufffd'", "b = '\ufffd'\na = '\ufffd'")
    assert "which ones" in swapped
    assert (
        await edit(ctx, call, two, "a = '\ufffd'\nb = '\ufffd'", "c = '\ufffd'\nb = '\ufffd'") == ""
    )
    assert (ctx.root / "f").read_bytes() == two.replace(b"a =", b"c =")


@pytest.mark.parametrize("name", ["edit", "write"])
async def test_half_a_pair_never_becomes_a_byte(ctx: Run, call: Call, name: str) -> None:
    (ctx.root / "f").write_bytes(DAMAGED)
    arguments: dict[str, Any] = (
        {"content": "\udcff"}
        if name == "write"
        else {"old_string": "name", "new_string": "n\udcff"}
    )
    assert "surrogate" in (await call(name, file_path="f", **arguments)).text
    assert (ctx.root / "f").read_bytes() == DAMAGED


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"\xef\xbb\xbfa\r\nb\r\n", "é\nx\n", b"\xef\xbb\xbf\xc3\xa9\r\nx\r\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        ("a\r\nb\r\n".encode("utf-16"), "é\nx", "é\r\nx".encode("utf-16")),
        (b"a\rb\r", "x\ny\n", b"x\ry\r"),
        ("café\n".encode("cp1252"), "thé — 5 €\n", "thé — 5 €\n".encode("cp1252")),
        (b"\x89PNG\r\n\x1a\n\0", "é\n", "é\n".encode()),
    ],
)
async def test_write_keeps_marks_encodings_and_line_ends(
    ctx: Run, call: Call, before: bytes, content: str, after: bytes
) -> None:
    (ctx.root / "f").write_bytes(before)
    assert not (await call("write", file_path="f", content=content)).error
    assert (ctx.root / "f").read_bytes() == after


async def test_a_change_of_encoding_is_said(ctx: Run, call: Call) -> None:
    (ctx.root / "f").write_bytes("# 注释 中文\n".encode("gbk"))
    result = await call("write", file_path="f", content="# 😀\n")
    assert "now in UTF-8: GBK, as the file was, has no '😀'" in result.text
    assert (ctx.root / "f").read_bytes() == "# 😀\n".encode()
    gbk = "# 注释 中文\n".encode("gbk")
    assert "'😀' cannot be written in GBK" in await edit(ctx, call, gbk, "#", "😀")


ROWS = b"a = 1\nb = 2\n\nd = 4\n"


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("2\tb = 2", "2\tb = 2\nc = 3", b"a = 1\nb = 2\nc = 3\n\nd = 4\n"),
        ("2\tb = 2", "c = 3\n2\tb = 2", b"a = 1\nc = 3\nb = 2\n\nd = 4\n"),
        ("1\ta = 1\n2\tb = 2", "1\ta = 1\nx\n2\tb = 2", b"a = 1\nx\nb = 2\n\nd = 4\n"),
        ("2\tb = 2\n3\t\n4\td = 4", "2\tb = 2\n\n4\td = 5", b"a = 1\nb = 2\n\nd = 5\n"),
        ("2\tb = 2\n\n4\td = 4", "2\tb = 2\n\n4\td = 5", b"a = 1\nb = 2\n\nd = 5\n"),
        ("2\tb = 2", "2\tb = 2\n3\tc = 3", b"a = 1\nb = 2\nc = 3\n\nd = 4\n"),
        ("  2\tb = 2\r\n", "b = 3\n", b"a = 1\nb = 3\n\nd = 4\n"),
        ("2\tb = 2", "", b"a = 1\n\n\nd = 4\n"),
        ("9\tb = 2", "9\tb = 3", None),
        ("2\tb = 2", "7\tb = 3", None),
        ("b = 2", "2\tb = 3", None),
        ("b = 2\n\nd = 4", "2\tb = 3\n\n4\td = 5", None),
        ("b = 2", "7\tb = 3", b"a = 1\n7\tb = 3\n\nd = 4\n"),
    ],
)
async def test_line_numbers_are_never_written(
    ctx: Run, call: Call, old: str, new: str, after: bytes | None
) -> None:
    refusal = await edit(ctx, call, ROWS, old, new)
    assert (ctx.root / "f").read_bytes() == (after or ROWS)
    assert bool(refusal) == (after is None)
    assert after or "umber" in refusal


TABLE = b"1\tapple\n2\tpear\n3\tfig\n"


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("9\tpear", "9\tplum", None),
        ("3\tpear", "3\tplum", None),
        ("2\tpear", "2\tplum", b"1\tapple\n2\tplum\n3\tfig\n"),
        ("2\tpear", "2\tplum\n7\tkiwi", b"1\tapple\n2\tplum\n7\tkiwi\n3\tfig\n"),
        ("2\t2\tpear", "2\t2\tplum", b"1\tapple\n2\tplum\n3\tfig\n"),
        ("2\t2\tpear", "2\tplum", None),
        ("2\t2\tpear", "2\t2\tplum\n3\tkiwi", None),
        ("2\tpear", "2\t2\tplum", None),
        ("pear", "2\tplum", None),
        ("pear", "plum\n9\tkiwi", b"1\tapple\n2\tplum\n9\tkiwi\n3\tfig\n"),
    ],
)
async def test_rows_of_a_table_are_not_numbered_lines(
    ctx: Run, call: Call, old: str, new: str, after: bytes | None
) -> None:
    refusal = await edit(ctx, call, TABLE, old, new)
    assert (ctx.root / "f").read_bytes() == (after or TABLE)
    assert bool(refusal) == (after is None)


async def test_a_number_that_fits_two_places_is_refused(ctx: Run, call: Call) -> None:
    before = b"apple\npear\n\n2\tpear\n"
    assert "without line numbers" in await edit(ctx, call, before, "2\tpear", "2\tplum")


async def test_line_numbers_choose_one_of_several_places(ctx: Run, call: Call) -> None:
    assert await edit(ctx, call, b"x\ny\nx\n", "3\tx", "3\tz") == ""
    assert (ctx.root / "f").read_bytes() == b"x\ny\nz\n"
    assert "replace_all" in await edit(ctx, call, b"x\ny\nx\n", "3\tx", "z", replace_all=True)


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a = 1\nb = 2\n", "a = 1\r\nb = 2", "a = 1\r\nb = 3\r\nc", b"a = 1\nb = 3\nc\n"),
        (b"a\rb\rc\r", "a\nb", "a\nx\nb", b"a\rx\rb\rc\r"),
        (b"a\nb\n", "a\rb", "a\rc", b"a\nc\n"),
        (b"a\r\nb\r\nc\nd\r\n", "b\nc\nd", "b\nC\nd", b"a\r\nb\r\nC\nd\r\n"),
        (b"a\r\nb\r\nc\nd\r\n", "b", "b\nx", b"a\r\nb\r\nx\r\nc\nd\r\n"),
        (b"a\r\nb\r\nc\nd\r\n", "c\nd", "c\nx\nd", b"a\r\nb\r\nc\nx\nd\r\n"),
        (b"a\nb\r\nc\n", "a\nb", "a\nb\nx", b"a\nb\r\nx\r\nc\n"),
        (b"a\r\nb", "b", "b\nc", b"a\r\nb\r\nc"),
        (b"one", "one", "one\r\ntwo", b"one\r\ntwo"),
        (b"a\r\n", "a\n", "b\n", b"b\r\n"),
    ],
)
async def test_new_lines_end_as_the_place_does(
    ctx: Run, call: Call, before: bytes, old: str, new: str, after: bytes
) -> None:
    assert await edit(ctx, call, before, old, new) == ""
    assert (ctx.root / "f").read_bytes() == after


async def test_places_that_differ_only_in_line_ends_are_the_same_text(ctx: Run, call: Call) -> None:
    assert "2 times" in await edit(ctx, call, b"a\nb\n-\na\r\nb\n", "a\nb", "c")
    assert await edit(ctx, call, b"a\nb\n-\na\r\nb\n", "a\nb", "c\nb", replace_all=True) == ""
    assert (ctx.root / "f").read_bytes() == b"c\nb\n-\nc\r\nb\n"
    assert "keeps" in await edit(ctx, call, b"a\r\nb\r\n", "a\r\nb", "a\nb")


NFD = unicodedata.normalize("NFD", "café")


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
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
)
async def test_look_alikes_match_once_and_stay(
    ctx: Run, call: Call, before: str, old: str, new: str, after: str
) -> None:
    assert await edit(ctx, call, before.encode(), old, new) == ""
    assert (ctx.root / "f").read_bytes().decode() == after


@pytest.mark.parametrize(
    ("before", "old", "new", "expected"),
    [
        ("k\na\u00a0= 1\n", "a = 1", "b == 1", "U+00A0 NO-BREAK SPACE in line 2, column 2"),
        ("a\u00a0b\na\u2009b\n", "a b", "a c", "2 places (lines 1, 2)"),
        ("a\u00a0b\na\u00a0b\n", "a b", "a c", "2 places"),
        (f"{NFD}\n", "cafe", "tea", "not in f"),
        (f"{NFD}\n", "caf", "ca", ""),
    ],
)
async def test_look_alikes_that_would_change_unseen_are_refused(
    ctx: Run, call: Call, before: str, old: str, new: str, expected: str
) -> None:
    refusal = await edit(ctx, call, before.encode(), old, new)
    assert expected in refusal
    assert bool(refusal) == bool(expected)


@pytest.mark.parametrize(
    "text",
    [
        "GIF89a is a format;",
        "GIF89a is a format; café",
        "%PDF is one, too",
        "BZhang wrote this",
        "SQLite format 3 is new",
        "BZh 中文",
    ],
)
async def test_text_may_begin_like_a_binary_file(ctx: Run, call: Call, text: str) -> None:
    before = f"{text}\nneedle\n".encode()
    (ctx.root / "f").write_bytes(before)
    assert (await call("read", file_path="f")).text == f"1\t{text}\n2\tneedle"
    assert (await call("grep", pattern="needle", path="f")).text == "f"
    assert await edit(ctx, call, before, "needle", "pin") == ""


def test_every_file_is_decoded_without_loss() -> None:
    for size in range(1, 4):
        for byte in range(256):
            data = bytes([byte]) * size + b"a\n"
            encoding = detect_encoding(data)
            body = data[len(encoding.bom) :]
            text = body.decode(encoding.codec, encoding.errors)
            assert text.encode(encoding.codec, encoding.errors) == body, data


@pytest.mark.parametrize(
    ("codec", "text", "pattern"),
    [
        ("cp1252", "un café — noir\n", "café —"),
        ("cp1252", "un café\n", "caf.$"),
        ("gbk", "x = 1  # 注释\n", "注释"),
        ("gbk", "x = 1  # 中文\n", "^x = . +# 中"),
        ("cp932", "表示するデータ\n", "データ"),
        ("utf-16", "wide 中文\n", "中文"),
        ("utf-16-le", "wide é\n", "wide"),
        ("utf-32", "wide é\n", "wide é"),
        ("utf-8", "café\n", "café"),
    ],
)
async def test_grep_finds_and_shows_text_as_read_shows_it(
    ctx: Run, call: Call, codec: str, text: str, pattern: str
) -> None:
    (ctx.root / "f").write_bytes(f"first\n{text}".encode(codec))
    (ctx.root / "g").write_bytes(b"nothing\n")
    found = await call("grep", pattern=pattern, output_mode="content")
    assert found.text == f"f:2:{text.strip()}"
    shown = (await call("read", file_path="f")).text.split("\n")[1]
    assert shown == f"2\t{text.strip()}"


async def test_grep_does_not_find_half_of_a_character(ctx: Run, call: Call) -> None:
    (ctx.root / "f").write_bytes("表示ソフトのデータ\n".encode("cp932"))  # two end with a backslash
    assert b"\\" in (ctx.root / "f").read_bytes()
    assert "no matches" in (await call("grep", pattern=r"\\")).text


async def test_grep_shows_a_file_of_unknown_encoding_as_read_does(ctx: Run, call: Call) -> None:
    (ctx.root / "f").write_bytes("# Привет\n".encode("cp1251"))
    shown = (await call("read", file_path="f")).text.split("\n")[0].removeprefix("1\t")
    found = await call("grep", pattern=shown, output_mode="content")
    assert found.text == f"f:1:{shown}"


async def test_copies_for_a_search_are_made_in_batches(
    ctx: Run, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom._adapters.tools._ripgrep._MAX_COPIED_BYTES", 10)
    for number in range(7):
        (ctx.root / f"f{number}").write_bytes("un café noir\n".encode("cp1252"))
    found = await call("grep", pattern="café")
    assert found.text.split("\n") == [f"f{number}" for number in range(7)]


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        (f"{NFD}.txt", "café.txt", "does not exist, but café.txt does: it looks the same"),
        ("café.txt", f"{NFD}.txt", "its letters with accents are composed"),
        ("src/Upper.PY", "src/upper.py", "but src/Upper.PY does: upper and lower case differ"),
        ("Src/a/b.py", "src/A/b.py", "but Src/a/b.py does"),
        ("STRASSE.md", "straße.md", "but STRASSE.md does"),
        ("other.py", "upper.py", "upper.py does not exist"),
    ],
)
async def test_a_file_with_another_spelling_of_the_name_is_named(
    ctx: Run, call: Call, name: str, asked: str, expected: str
) -> None:
    (ctx.root / name).parent.mkdir(exist_ok=True, parents=True)
    (ctx.root / name).write_text("x\n")
    (ctx.root / ".gitignore").write_text("*.txt\n")
    for tool, arguments in (("read", {}), ("edit", {"old_string": "x", "new_string": "y"})):
        result = await call(tool, file_path=asked, **arguments)
        assert result.error
        assert expected in unicodedata.normalize("NFC", result.text)


@pytest.mark.parametrize("path", ["/nowhere", "/nowhere/at/all", "../../nowhere", "a/../../b"])
async def test_a_missing_file_outside_is_answered_at_once(call: Call, path: str) -> None:
    assert (await call("read", file_path=path)).error


async def test_write_tells_of_a_name_that_looks_the_same(ctx: Run, call: Call) -> None:
    (ctx.root / NFD).write_text("x\n")
    result = await call("write", file_path="café", content="y\n")
    assert r"another file looks the same, 'cafe\u0301': this is 'caf\xe9'" in result.text
    assert (ctx.root / NFD).read_text() == "x\n"


async def test_lines_that_end_with_cr_only_have_the_same_numbers_everywhere(
    ctx: Run, call: Call
) -> None:
    before = b"one\rtwo\r\rfour"
    (ctx.root / "f").write_bytes(before)
    assert (await call("read", file_path="f")).text == "1\tone\n2\ttwo\n3\t\n4\tfour"
    found = await call("grep", pattern="^t|r$", output_mode="content")
    assert found.text == "f:2:two\nf:4:four"
    assert await edit(ctx, call, before, "2\ttwo", "2\t2\nx") == ""
    assert (ctx.root / "f").read_bytes() == b"one\r2\rx\r\rfour"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        # Each from a report about another editor of files.
        (
            b"// Copyright \xa9 Example. rights\r\nint main() { }\r\n",
            "rights\nint",
            "Rights — all\nint",
            b"// Copyright \xa9 Example. Rights \x97 all\r\nint main() { }\r\n",
        ),
        (
            b"log(done);\n",
            "log(done);",
            "log($& $$ $1 $` \\1 \\g<0>);",
            b"log($& $$ $1 $` \\1 \\g<0>);\n",
        ),
        (b"s = 'a'\n", "'a'", "'a\\nb\\t'", b"s = 'a\\nb\\t'\n"),
        (b"#define A \\\n  1\n", "  1", "  2 \\\n  3", b"#define A \\\n  2 \\\n  3\n"),
        (b"a\r\r\nb\r\r\n", "b", "c", b"a\r\r\nc\r\r\n"),
        ("┌─┐\n│x│\n└─┘\n".encode(), "│x│", "│y→│", "┌─┐\n│y→│\n└─┘\n".encode()),
        (b"\tif x:\n\t\ty = 1\n    z\n", "\t\ty = 1", "\t\ty = 2", b"\tif x:\n\t\ty = 2\n    z\n"),
        (b"a  b\x0cc\x0bd\x1ce\n", "b", "B", b"a  B\x0cc\x0bd\x1ce\n"),
        ("a\u2028b\u0085c\n".encode(), "c", "d", "a\u2028b\u0085d\n".encode()),
    ],
)
async def test_nothing_else_in_the_file_changes(
    ctx: Run, call: Call, before: bytes, old: str, new: str, after: bytes
) -> None:
    assert await edit(ctx, call, before, old, new) == ""
    assert (ctx.root / "f").read_bytes() == after


async def test_white_space_alone_is_replaced_everywhere_once(ctx: Run, call: Call) -> None:
    assert await edit(ctx, call, b"a  b  c\n", " ", "  ", replace_all=True) == ""
    assert (ctx.root / "f").read_bytes() == b"a    b    c\n"


async def test_tabs_that_come_back_as_spaces_are_named(ctx: Run, call: Call) -> None:
    refusal = await edit(ctx, call, b"\tif x:\n\t\ty = 1\n", "    if x:\n        y = 1", "z")
    assert "Only white space differs; lines 1-2 are:\n1\t\tif x:" in refusal


async def test_large_files_are_edited_in_bounded_time(ctx: Run, call: Call) -> None:
    many = 8_000
    cases: list[tuple[bytes, str, str]] = [
        (b"a b\n" * many, "1\tx\n" * many, "y"),
        (b"x\n" * many, "1\tx", "1\ty"),
        (b"\t" * many, "1\t" * many, "y"),
        (b"a\r\nb\n" * many, "a\nb\n" * (many - 1), "c\nb\nd\n" * many),
        (("e" + "\u0301" * many).encode(), "é x", "y"),
        (b"a\n" * many, "  a\n" * many, "y"),
        ("Привет мир ".encode("cp1251") * many, "é", "y"),
        (b"\xff" * many * 10, "é", "y"),
    ]
    async with asyncio.timeout(60):
        for before, old, new in cases:
            await edit(ctx, call, before, old, new)
        assert await edit(ctx, call, b"x\r\ny\n" * many, "x\ny", "z\nw", replace_all=True) == ""
        assert (ctx.root / "f").read_bytes() == b"z\r\nw\n" * many
