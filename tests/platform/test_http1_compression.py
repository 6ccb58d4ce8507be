"""Compressed bodies: read whole in any pieces, and never expanded without a bound."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable

import pytest

from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._core.messages import AssistantMessage, user_message
from mudroom._core.ports import RequestConfig
from mudroom._platform.http1.parser import Decompressor, MalformedResponse
from mudroom.errors import ModelError
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import Fault, ModelServer

TEXT = b"".join(b'data: {"n": %d}\n\n' % n for n in range(20_000))


def compress_raw(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


FORMS = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "gzip in upper case": ("GZIP", gzip.compress(TEXT)),
    "gzip in two members": ("x-gzip", gzip.compress(TEXT[:99]) + gzip.compress(TEXT[99:])),
    "gzip with padding": ("gzip", gzip.compress(TEXT) + b"\0" * 8),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "deflate without a header": ("deflate", compress_raw(TEXT)),
}


def read_all(decompressor: Decompressor, data: bytes, size: int) -> bytes:
    pieces: list[bytes] = []
    for start in range(0, len(data), size):
        pieces.append(decompressor.read(data[start : start + size]))
        while decompressor.has_waiting:
            pieces.append(decompressor.read())
    return b"".join(pieces)


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("form", FORMS)
def test_a_compressed_body_is_read_in_any_pieces(form: str, size: int) -> None:
    encoding, data = FORMS[form]
    assert read_all(Decompressor(encoding), data, size) == TEXT


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, compress_raw])
def test_a_bomb_is_refused_before_it_fills_the_memory(compress: Callable[[bytes], bytes]) -> None:
    bomb = compress(bytes(64_000_000))
    decompressor = Decompressor("gzip")
    sizes = [len(decompressor.read(bomb))]
    with pytest.raises(MalformedResponse, match="expands to more than 200 times"):
        while decompressor.has_waiting:
            sizes.append(len(decompressor.read()))
    assert max(sizes) <= 256 * 1024
    assert sum(sizes) < 14_000_000


def test_damaged_data_is_an_error() -> None:
    data = bytearray(gzip.compress(TEXT))
    data[200:220] = bytes(20)
    with pytest.raises(MalformedResponse, match="damaged"):
        read_all(Decompressor("gzip"), bytes(data), 64)


@pytest.mark.parametrize("status", [200, 400])
async def test_an_answer_that_a_gateway_compressed_is_read(status: int) -> None:
    chunk = {"choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}]}
    body = b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(chunk).encode()
    error = json.dumps({"error": {"message": "no such thing"}}).encode()
    is_answer = status == 200
    fault = Fault(
        status=status,
        body=gzip.compress(body if is_answer else error),
        content_type="text/event-stream" if is_answer else "application/json",
        headers={"Content-Encoding": "gzip"},
    )
    async with ModelServer(lambda _: fault) as server:
        model = OpenAIModel("m", http=HttpClient(clock=FakeClock()), base_url=server.url)
        conversation = model.start_conversation(RequestConfig(system=""))
        conversation.append(user_message("Hi."))
        try:
            parts = [part async for part in conversation.request_answer()]
            assert isinstance(parts[-1], AssistantMessage)
            outcome = parts[-1].text
        except ModelError as refusal:
            outcome = str(refusal)
        await model.close()
    assert ("Hello." if is_answer else "no such thing") in outcome
    assert server.request_count == 1
