"""Tests of the read tool on image files."""

from __future__ import annotations

import struct
import zlib

import pytest

from mudroom._adapters.tools._image_files import MAX_IMAGE_BYTES, parse_image

from .conftest import Call, Run


def make_png(width: int = 3, height: int = 2, padding: int = 0) -> bytes:
    def encode_chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height)))
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            encode_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
            encode_chunk(b"tEXt", b"x" * padding),
            encode_chunk(b"IDAT", rows),
            encode_chunk(b"IEND", b""),
        )
    )


GIF = b"GIF89a" + struct.pack("<HHBBB", 5, 4, 0, 0, 0) + b"\x2c\0\x3b"
JPEG = (
    b"\xff\xd8\xff\xe0\0\x04ab"
    + b"\xff\xc0\0\x0b\x08"
    + struct.pack(">HH", 7, 9)
    + b"\x01\x01\x11\0"
    + b"\xff\xda\0\x08\x01\x01\0\0?\0data\xff\xd9"
)


def make_webp(chunk: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


WEBP_LOSSY = make_webp(b"VP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 11, 12))
WEBP_LOSSLESS = make_webp(
    b"VP8L\x06\0\0\0\x2f" + struct.pack("<I", (13 - 1) | (14 - 1) << 14) + b"\0"
)
WEBP_EXTENDED = make_webp(b"VP8X\x0a\0\0\0\0\0\0\0\x0e\0\0\x0f\0\0")
IMAGES = [
    ("a.png", make_png(), "image/png", 3, 2),
    ("a.gif", GIF, "image/gif", 5, 4),
    ("a.jpg", JPEG, "image/jpeg", 9, 7),
    ("lossy.webp", WEBP_LOSSY, "image/webp", 11, 12),
    ("lossless.webp", WEBP_LOSSLESS, "image/webp", 13, 14),
    ("extended.webp", WEBP_EXTENDED, "image/webp", 15, 16),
]


@pytest.mark.parametrize(("name", "data", "media_type", "width", "height"), IMAGES)
async def test_an_image_file_gives_an_image(
    ctx: Run, call: Call, name: str, data: bytes, media_type: str, width: int, height: int
) -> None:
    (ctx.root / name).write_bytes(data)
    result = await call("read", file_path=name)
    assert not result.error
    (image,) = result.images
    assert (image.media_type, image.width, image.height) == (media_type, width, height)
    assert image.data == data
    assert result.reads == (name,)
    assert result.text == f"{name}: {media_type}, {width}x{height} pixels, {len(data):,} bytes"


@pytest.mark.parametrize(("name", "data", "media_type", "width", "height"), IMAGES)
def test_a_truncated_image_is_not_an_image(
    name: str, data: bytes, media_type: str, width: int, height: int
) -> None:
    assert parse_image(data) is not None
    for end in range(len(data)):
        assert parse_image(data[:end]) is None, end


def test_an_image_of_other_bytes_is_not_an_image() -> None:
    damaged = bytearray(make_png(30, 30))
    damaged[60] ^= 1
    assert parse_image(bytes(damaged)) is None
    assert parse_image(b"text") is None


async def test_a_large_image_is_refused_with_its_size(ctx: Run, call: Call) -> None:
    data = make_png(padding=MAX_IMAGE_BYTES)
    (ctx.root / "a.png").write_bytes(data)
    result = await call("read", file_path="a.png")
    assert result.error
    assert not result.images
    assert f"{len(data):,} bytes" in result.text
    assert f"at most {MAX_IMAGE_BYTES:,} bytes" in result.text


async def test_an_image_with_too_many_pixels_is_refused(ctx: Run, call: Call) -> None:
    (ctx.root / "a.png").write_bytes(make_png(8_001, 1))
    result = await call("read", file_path="a.png")
    assert result.error
    assert "8001x1 pixels" in result.text


async def test_an_image_of_a_megabyte_is_read(ctx: Run, call: Call) -> None:
    data = make_png(padding=1_000_000)
    (ctx.root / "a.png").write_bytes(data)
    (image,) = (await call("read", file_path="a.png")).images
    assert image.data == data
