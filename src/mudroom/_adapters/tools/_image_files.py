"""Image files: their type, size in pixels, and completeness.

Providers refuse requests with a broken image, and the image would stay in the conversation. So only
complete images reach a model.
"""

from __future__ import annotations

import struct
import zlib

from ..._core.messages import ImageBlock

# That makes 2 MB in base64; providers accept requests of about 20 to 32 MB.
MAX_IMAGE_BYTES = 1_500_000
MAX_PIXELS_PER_SIDE = 8_000  # the largest that all providers accept

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_GIF = (b"GIF87a", b"GIF89a")

# Width and height in pixels; None for an incomplete image.
_Size = tuple[int, int] | None


def is_image(head: bytes) -> bool:
    return head.startswith((_PNG, _JPEG, *_GIF)) or _is_webp(head)


def parse_image(data: bytes) -> ImageBlock | None:
    """Parse an image file; None if it is not a complete image."""
    try:
        if data.startswith(_PNG):
            return _to_block("image/png", data, _read_png_size(data))
        if data.startswith(_JPEG):
            return _to_block("image/jpeg", data, _read_jpeg_size(data))
        if data.startswith(_GIF):
            return _to_block("image/gif", data, _read_gif_size(data))
        if _is_webp(data):
            return _to_block("image/webp", data, _read_webp_size(data))
    except (struct.error, IndexError):
        pass
    return None


def parse_sendable_image(data: bytes) -> ImageBlock | None:
    """Parse an image file; None if it is incomplete or too large for providers.

    Arguments:
        data: content of a PNG, JPEG, GIF or WebP file.
    """
    image = parse_image_or_reason(data)
    return None if isinstance(image, str) else image


def parse_image_or_reason(data: bytes) -> ImageBlock | str:
    """Parse an image file; return the reason, as a clause, if it cannot be sent to providers."""
    if len(data) > MAX_IMAGE_BYTES:
        return f"it has more than {MAX_IMAGE_BYTES:,} bytes"
    if not is_image(data):
        return "it is no PNG, JPEG, GIF or WebP file"
    image = parse_image(data)
    if image is None:
        return "the file is incomplete or damaged"
    if max(image.width, image.height) > MAX_PIXELS_PER_SIDE:
        return f"a side has more than {MAX_PIXELS_PER_SIDE:,} pixels"
    return image


def _to_block(media_type: str, data: bytes, size: _Size) -> ImageBlock | None:
    if size is None or 0 in size:
        return None
    return ImageBlock(media_type, data, *size)


def _read_png_size(data: bytes) -> _Size:
    """Read the size, after checking the checksums of all chunks."""
    position = len(_PNG)
    while position < len(data):
        (length,) = struct.unpack_from(">I", data, position)
        end = position + 8 + length
        (checksum,) = struct.unpack_from(">I", data, end)
        if zlib.crc32(data[position + 4 : end]) != checksum:
            return None
        if data[position + 4 : position + 8] == b"IEND":
            return struct.unpack_from(">II", data, 16)
        position = end + 4
    return None


def _read_jpeg_size(data: bytes) -> _Size:
    """Read the size from the first frame header, if the file has an end marker."""
    if data.rfind(b"\xff\xd9") < 0:
        return None
    position = 2
    while True:
        marker = data[position + 1]
        # 0xC0 to 0xCF are frame headers, except the tables C4, C8 and CC.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        (length,) = struct.unpack_from(">H", data, position + 2)
        position += 2 + length
        if data[position] != 0xFF:
            return None


def _read_gif_size(data: bytes) -> _Size:
    # Each block of a GIF ends with NUL, unlike text such as "GIF89a;".
    if not data.endswith(b"\x3b") or b"\0" not in data:
        return None
    return struct.unpack_from("<HH", data, 6)


def _is_webp(data: bytes) -> bool:
    return data.startswith(b"RIFF") and data[8:12] == b"WEBP"


def _read_webp_size(data: bytes) -> _Size:
    (length,) = struct.unpack_from("<I", data, 4)
    if len(data) < length + 8:
        return None
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        # The two highest bits are a scale.
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        return width, height
    return None
