"""The tools read and write: text of any encoding, images, and files that are neither."""

from __future__ import annotations

import asyncio
import os
import struct
import unicodedata
import zlib
from typing import Any

import pytest
from tests.tools.conftest import Call, Run
from tests.tools.test_edit import DAMAGED, NFD, edit

from mudroom._adapters.tools._image_files import MAX_IMAGE_BYTES, parse_image
from mudroom._adapters.tools.text.encodings import detect_encoding


async def test_read_numbers_lines_and_reports_the_file(ctx: Run, call: Call) -> None:
    (ctx.root / "a.py").write_text("one\n\n\tthree\n")
    result = await call("read", file_path="a.py")
    assert result.text == "1\tone\n2\t\n3\t\tthree"
    assert result.reads == ("a.py",)
    assert (await call("read", path=f"{ctx.root}/a.py")).reads == ("a.py",)


async def test_read_numbers_any_range_of_lines_and_names_the_next_offset(
    ctx: Run, call: Call
) -> None:
    lines = [f"%s {number} %" for number in range(1, 5_001)]
    (ctx.root / "a").write_text("\n".join(lines))
    ranges = [(1, 1), (9, 3), (98, 4), (999, 3), (1_995, 5), (1_999, 2), (1_999, 4), (4_998, 2)]
    for first, count in ranges:
        text = (await call("read", file_path="a", offset=first, limit=count)).text
        end = first + count
        notice = f"(lines {first}-{end - 1} of 5,000; continue with offset={end})"
        rows = [f"{number}\t{lines[number - 1]}" for number in range(first, end)]
        assert text.splitlines() == [*rows, notice]
    whole = (await call("read", file_path="a")).text.splitlines()
    assert whole[2_000:] == ["(lines 1-2000 of 5,000; continue with offset=2001)"]
    assert (await call("read", file_path="a", offset=5_000)).text == "5000\t%s 5000 %"


async def test_an_empty_file_and_an_offset_past_the_end_have_notices(ctx: Run, call: Call) -> None:
    (ctx.root / "empty").write_text("")
    (ctx.root / "short").write_text("one\ntwo")
    assert (await call("read", file_path="empty")).text == "(empty is empty)"
    past = await call("read", file_path="short", offset=3)
    assert past.text == "(short has 2 lines; offset 3 is past its end)"
    assert not past.error


async def test_long_lines_and_long_files_are_cut(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_text("é" * 100_000 + "\nnext\n" + "z" * 2_001)
    rows = (await call("read", file_path="a")).text.splitlines()
    assert rows[0] == "1\t" + "é" * 2_000 + " [line cut]"
    assert rows[1] == "2\tnext"
    assert rows[2] == "3\t" + "z" * 2_000 + " [line cut]"
    (ctx.root / "a").write_text(("x" * 1_900 + "\n") * 3_000)
    text = (await call("read", file_path="a")).text
    assert len(text) <= 50_000
    last = int(text.splitlines()[-2].split("\t")[0])
    assert text.endswith(f"(lines 1-{last} of 3,000; continue with offset={last + 1})")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\x89PNG\r\n\x1a\n", "a is a PNG image of 8 bytes"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a is a PDF document of 15 bytes"),
        (b"PK\x03\x04", "a is a ZIP archive of 4 bytes"),
        (b"ab\0cd", "a is a binary file of 5 bytes"),
        (b"\xef\xbb\xbfbom\n", "1\tbom"),
        ("wide é\nzwei\n".encode("utf-16"), "1\twide é\n2\tzwei\n(UTF-16-LE)"),
        (b"\xfe\xff" + "wide".encode("utf-16-be"), "1\twide\n(UTF-16-BE)"),
        ("caf\xe9\n".encode("latin-1"), "1\tcafé\n(not UTF-8, but Windows-1252)"),
        (b"dos\r\nends\r\n", "1\tdos\n2\tends"),
    ],
)
async def test_a_file_is_shown_as_text_or_described(
    ctx: Run, call: Call, data: bytes, shown: str
) -> None:
    (ctx.root / "a").write_bytes(data)
    result = await call("read", file_path="a")
    assert shown in result.text if result.error else shown == result.text
    assert result.error == shown.startswith("a is")


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


async def test_the_result_of_read_is_valid_text(ctx: Run, call: Call) -> None:
    (ctx.root / "a").write_bytes(b"text\n" * 2_000 + bytes(range(256)))
    text = (await call("read", file_path="a", offset=1990)).text
    assert text.encode() and "\0" not in text


async def test_48_a_sparse_file_of_50_gb_is_bounded(ctx: Run, call: Call) -> None:
    for name, text in (("sparse", b""), ("text", b"line\n" * 10_000)):
        (ctx.root / name).write_bytes(text)
        os.truncate(ctx.root / name, 50 << 30)
    async with asyncio.timeout(60):
        sparse = (await call("read", file_path="sparse")).text
        assert "binary file of 53,687,091,200 bytes" in sparse
        text = (await call("read", file_path="text")).text
        assert text.endswith("(lines 1-2000; continue with offset=2001)")
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
    for path in ("/nowhere", "/nowhere/at/all", "../../nowhere", "a/../../b"):
        assert (await call("read", file_path=path)).error


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


async def test_write_tells_created_from_overwritten_and_names_that_look_the_same(
    ctx: Run, call: Call
) -> None:
    made = await call("write", file_path="a/b/c.py", content="one\ntwo\n")
    assert (made.text, made.changes) == ("created a/b/c.py (2 lines)", ("a/b/c.py",))
    assert (await call("write", path="a/b/c.py", text="one")).text == "overwrote a/b/c.py (1 line)"
    assert (ctx.root / "a/b/c.py").read_text() == "one"
    (ctx.root / NFD).write_text("x\n")
    result = await call("write", file_path="café", content="y\n")
    assert r"another file looks the same, 'cafe\u0301': this is 'caf\xe9'" in result.text
    assert (ctx.root / NFD).read_text() == "x\n"


@pytest.mark.parametrize("path", ["src/", "a/b//", "./"])
async def test_write_makes_no_file_for_the_path_of_a_folder(
    ctx: Run, call: Call, path: str
) -> None:
    assert "name a file" in (await call("write", file_path=path, content="x")).text
    assert not os.listdir(ctx.root)


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"\xef\xbb\xbfa\r\nb\r\n", "é\nx\n", b"\xef\xbb\xbf\xc3\xa9\r\nx\r\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        ("a\r\nb\r\n".encode("utf-16"), "é\nx", "é\r\nx".encode("utf-16")),
        (b"one\r\ntwo\r\n", "three\nfour\r\n", b"three\r\nfour\r\n"),
        (b"one\r\ntwo\n", "three\n", b"three\n"),
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
    found = await call("grep", pattern=shown[:9], output_mode="content")
    assert codec in ("hz", "iso2022_jp", "utf-7") or found.text == f"f:1:{shown}"
    assert "cannot be told" in (await call("write", file_path="f", content="é")).text
    assert (ctx.root / "f").read_bytes() == data


async def test_half_of_a_character_is_not_replaced_where_the_encoding_is_unknown(
    ctx: Run, call: Call
) -> None:
    data = "蓋 / 許\\\n".encode("big5")  # the second byte of two of these is a backslash
    assert data.count(b"\\") == 3
    assert "cannot be told" in await edit(ctx, call, data, "\\", "/", replace_all=True)


async def test_a_change_of_encoding_is_said(ctx: Run, call: Call) -> None:
    gbk = "# 注释 中文\n".encode("gbk")
    assert "'😀' cannot be written in GBK" in await edit(ctx, call, gbk, "#", "😀")
    result = await call("write", file_path="f", content="# 😀\n")
    assert "now in UTF-8: GBK, as the file was, has no '😀'" in result.text
    assert (ctx.root / "f").read_bytes() == "# 😀\n".encode()


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


async def test_copies_for_a_search_are_made_in_batches(
    ctx: Run, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom._adapters.tools._ripgrep._MAX_COPIED_BYTES", 10)
    for number in range(7):
        (ctx.root / f"f{number}").write_bytes("un café noir\n".encode("cp1252"))
    found = await call("grep", pattern="café")
    assert found.text.split("\n") == [f"f{number}" for number in range(7)]


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


def make_png(width: int = 3, height: int = 2, padding: int = 0) -> bytes:
    def encode_chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height)))
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"tEXt": b"x" * padding,
        b"IDAT": rows,
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(encode_chunk(*chunk) for chunk in chunks.items())


def make_webp(chunk: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


JPEG = (
    b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x0b\x08"
    + struct.pack(">HH", 7, 9)
    + b"\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0?\0data\xff\xd9"
)
LOSSLESS = b"VP8L\x06\0\0\0\x2f" + struct.pack("<I", (13 - 1) | (14 - 1) << 14) + b"\0"
LOSSY = b"VP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 11, 12)
IMAGES = [
    (make_png(), "image/png", 3, 2),
    (b"GIF89a" + struct.pack("<HHBBB", 5, 4, 0, 0, 0) + b"\x2c\0\x3b", "image/gif", 5, 4),
    (JPEG, "image/jpeg", 9, 7),
    (make_webp(LOSSY), "image/webp", 11, 12),
    (make_webp(LOSSLESS), "image/webp", 13, 14),
    (make_webp(b"VP8X\x0a\0\0\0\0\0\0\0\x0e\0\0\x0f\0\0"), "image/webp", 15, 16),
]


@pytest.mark.parametrize(("data", "media_type", "width", "height"), IMAGES)
async def test_an_image_file_gives_an_image_unless_it_is_truncated(
    ctx: Run, call: Call, data: bytes, media_type: str, width: int, height: int
) -> None:
    (ctx.root / "a").write_bytes(data)
    result = await call("read", file_path="a")
    assert not result.error
    (image,) = result.images
    assert (image.media_type, image.width, image.height) == (media_type, width, height)
    assert image.data == data
    assert result.reads == ("a",)
    assert result.text == f"a: {media_type}, {width}x{height} pixels, {len(data):,} bytes"
    for end in range(len(data)):
        assert parse_image(data[:end]) is None, end


def test_an_image_of_other_bytes_is_not_an_image() -> None:
    damaged = bytearray(make_png(30, 30))
    damaged[60] ^= 1
    assert parse_image(bytes(damaged)) is None
    assert parse_image(b"text") is None


async def test_an_image_may_have_a_megabyte_but_not_any_size(ctx: Run, call: Call) -> None:
    large = make_png(padding=MAX_IMAGE_BYTES)
    sizes = f"{len(large):,} bytes", f"at most {MAX_IMAGE_BYTES:,} bytes"
    for data, texts in ((large, sizes), (make_png(8_001, 1), ("8001x1 pixels",))):
        (ctx.root / "a.png").write_bytes(data)
        result = await call("read", file_path="a.png")
        assert result.error and not result.images
        assert all(text in result.text for text in texts)
    data = make_png(padding=1_000_000)
    (ctx.root / "a.png").write_bytes(data)
    (image,) = (await call("read", file_path="a.png")).images
    assert image.data == data
