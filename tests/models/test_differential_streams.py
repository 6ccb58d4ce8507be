"""Comparison of our stream readers with pydantic-ai, which reads with the official SDKs."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from msgspec import Struct

from mudroom._core.messages import (
    ProviderBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from mudroom.testing.model_server import Fault, ModelServer
from mudroom.testing.wire_formats import WireAnswer

from .wires import ANTHROPIC as ANTHROPIC_WIRE
from .wires import GOOGLE as GOOGLE_WIRE
from .wires import OPENAI as OPENAI_WIRE
from .wires import RESPONSES as RESPONSES_WIRE
from .wires import Wire, make_pydantic_model

pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)
"""Warnings that google-genai itself causes."""

SEAL = base64.b64encode(b"signature").decode()
WIRES = {
    "anthropic": ANTHROPIC_WIRE,
    "openai": OPENAI_WIRE,
    "openai-responses": RESPONSES_WIRE,
    "google": GOOGLE_WIRE,
}


class ReadResult(Struct, frozen=True):
    """Result of reading a stream.

    Arguments:
        signatures: in the order of the stream.
        usage: input, output and cached tokens.
    """

    thinking: str
    text: str
    calls: list[tuple[str, str, dict[str, Any]]]
    signatures: list[str]
    usage: tuple[int, int, int]


def encode_events(*lines: str, names: bool = False) -> bytes:
    if names:
        return "".join(
            f"event: {json.loads(line)['type']}\ndata: {line}\n\n" for line in lines
        ).encode()
    return "".join(f"data: {line}\r\n\r\n" for line in lines).encode()


ANTHROPIC = encode_events(
    '{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,'
    '"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":7,"cache_read_input_tokens":64,"output_tokens":1}}}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}',
    '{"type":"ping"}',
    (
        '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta",'
        '"thinking":"First, "}}'
    ),
    '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"look."}}',
    f'{{"type":"content_block_delta","index":0,"delta":{{"type":"signature_delta","signature":"{SEAL}"}}}}',
    '{"type":"content_block_stop","index":0}',
    '{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}',
    (
        '{"type":"content_block_delta","index":1,"delta":{"type":"text_delta",'
        '"text":"Gr\\u00fc\\u00dfe "}}'
    ),
    '{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\\ud83d\\ude00"}}',
    '{"type":"content_block_stop","index":1}',
    '{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}',
    '{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}',
    (
        '{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta",'
        '"partial_json":"{\\"path\\": \\"x"}}'
    ),
    (
        '{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta",'
        '"partial_json":".py\\", \\"n\\": [1, 2.5, null]}"}}'
    ),
    '{"type":"content_block_stop","index":2}',
    '{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_2","name":"grep","input":{}}}',
    '{"type":"content_block_stop","index":3}',
    '{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}',
    '{"type":"message_stop"}',
    names=True,
)
_CHUNK = (
    '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m-1",'
    '"service_tier":"default",'
)
OPENAI = encode_events(
    _CHUNK
    + (
        '"choices":[{"index":0,"delta":{"role":"assistant","content":null,'
        '"refusal":null},"finish_reason":null}],"usage":null}'
    ),
    _CHUNK
    + (
        '"choices":[{"index":0,"delta":{"content":"Gr\\u00fc\\u00dfe "},'
        '"finish_reason":null}],"usage":null,"obfuscation":"x"}'
    ),
    _CHUNK
    + (
        '"choices":[{"index":0,"delta":{"content":"\\ud83d\\ude00"},"logprobs":null,'
        '"finish_reason":null}],"usage":null}'
    ),
    _CHUNK
    + '"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function",'
    '"function":{"name":"read","arguments":""}}]},"logprobs":null,"finish_reason":null}],"usage":null}',
    _CHUNK
    + (
        '"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,'
        '"function":{"arguments":"{\\"path\\": \\"x"}}]},"finish_reason":null}]}'
    ),
    _CHUNK
    + (
        '"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,'
        '"function":{"arguments":".py\\"}"}}]},"finish_reason":null}],"usage":null}'
    ),
    _CHUNK
    + '"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_2","type":"function",'
    '"function":{"name":"grep","arguments":"{}"}}]},"finish_reason":null}],"usage":null}',
    _CHUNK
    + (
        '"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}],'
        '"usage":null}'
    ),
    _CHUNK + '"choices":[],"usage":{"prompt_tokens":96,"completion_tokens":89,'
    '"total_tokens":185,"prompt_tokens_details":'
    '{"cached_tokens":64,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}}}',
    "[DONE]",
)
DEEPSEEK = encode_events(
    '{"id":"1","object":"chat.completion.chunk","created":1,"model":"r","choices":[{"index":0,"delta":{"role":"assistant","content":null,'
    '"reasoning_content":"First, "},"finish_reason":null}]}',
    '{"id":"1","object":"chat.completion.chunk","created":1,"model":"r","choices":[{"index":0,"delta":{"content":null,'
    '"reasoning_content":"look."},"finish_reason":null}]}',
    '{"id":"1","object":"chat.completion.chunk","created":1,"model":"r","choices":[{"index":0,"delta":{"content":"Yes."},"finish_reason":"stop"}],'
    '"usage":{"prompt_tokens":9,"completion_tokens":7,"total_tokens":16,"completion_tokens_details":{"reasoning_tokens":4}}}',
    "[DONE]",
)
_END = '"modelVersion":"gemini-x","responseId":"r1"}'
GOOGLE = encode_events(
    '{"candidates":[{"content":{"parts":[{"text":"First, look.","thought":true}],'
    '"role":"model"},"index":0}],'
    '"usageMetadata":{"promptTokenCount":96,"totalTokenCount":100,"thoughtsTokenCount":4},' + _END,
    (
        '{"candidates":[{"content":{"parts":[{"text":"Gr\\u00fc\\u00dfe "}],'
        '"role":"model"},"index":0}],'
    )
    + _END,
    '{"candidates":[{"content":{"parts":[{"text":"\\ud83d\\ude00"}],"role":"model"},"index":0}],'
    + _END,
    '{"candidates":[{"content":{"parts":[{"functionCall":{"id":"f1","name":"read","args":{"path":"x.py","n":[1,2.5,null]}},'
    f'"thoughtSignature":"{SEAL}"}},{{"functionCall":{{"id":"f2","name":"grep","args":{{}}}}}}],"role":"model"}},"index":0}}],'
    + _END,
    '{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0,"safetyRatings":[]}],"usageMetadata":'
    '{"promptTokenCount":96,"candidatesTokenCount":80,"totalTokenCount":185,"cachedContentTokenCount":64,"thoughtsTokenCount":9},'
    + _END,
)

WORDS = WireAnswer((TextBlock("Only words. " * 20),), "m", "r1", Usage(10, 20), StopReason.END)
ASKED = (
    TextBlock("Look."),
    ToolCallBlock("a", "read", {"path": "世界"}),
    ToolCallBlock("b", "grep", {"deep": {"x": [None, True]}}),
)
CALLS = WireAnswer(ASKED, "m", "r1", Usage(100, 20, 64), StopReason.CALLS)
RECORDED: list[tuple[str, str, bytes]] = [
    ("anthropic", "official", ANTHROPIC),
    ("openai", "official", OPENAI),
    ("openai", "reasoning", DEEPSEEK),
    ("google", "official", GOOGLE),
    *((name, "words", b"".join(wire.write(WORDS))) for name, wire in WIRES.items()),
    *((name, "calls", b"".join(wire.write(CALLS))) for name, wire in WIRES.items()),
]


def read_with_mudroom(wire: Wire, data: bytes) -> ReadResult:
    answer = wire.read_parts(data)
    return ReadResult(
        "".join(block.text for block in answer.content if isinstance(block, ThinkingBlock)),
        answer.text,
        [(call.id, call.name, call.arguments) for call in answer.tool_calls],
        [
            block.signature
            for block in answer.content
            if not isinstance(block, ProviderBlock) and block.signature and wire is not OPENAI_WIRE
        ],
        (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cache_read_tokens),
    )


async def read_with_pydantic_ai(wire: str, url: str) -> ReadResult:
    from pydantic_ai import messages as pm
    from pydantic_ai.direct import model_request_stream

    model = make_pydantic_model(wire, "m", url)
    async with (
        model,
        model_request_stream(model, [pm.ModelRequest.user_text_prompt("Hi")]) as stream,
    ):
        async for _ in stream:
            pass
    answer = stream.get()
    details = [
        part.provider_details or {}
        for part in answer.parts
        if isinstance(part, pm.ToolCallPart | pm.TextPart)
    ]
    thoughts = [part for part in answer.parts if isinstance(part, pm.ThinkingPart)]
    signatures = [part.signature for part in thoughts if part.signature] + [
        d["thought_signature"] for d in details if "thought_signature" in d
    ]
    return ReadResult(
        "".join(part.content for part in thoughts),
        "".join(part.content for part in answer.parts if isinstance(part, pm.TextPart)),
        [
            (part.tool_call_id, part.tool_name, part.args_as_dict())
            for part in answer.parts
            if isinstance(part, pm.ToolCallPart)
        ],
        signatures,
        (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cache_read_tokens),
    )


@pytest.mark.parametrize(
    ("name", "data"),
    [(name, data) for name, _, data in RECORDED],
    ids=[f"{a}-{b}" for a, b, _ in RECORDED],
)
async def test_our_reader_agrees_with_pydantic_ai(name: str, data: bytes) -> None:
    async with ModelServer(lambda _: Fault(body=data, content_type="text/event-stream")) as server:
        theirs = await read_with_pydantic_ai(name, server.url)
    assert read_with_mudroom(WIRES[name], data) == theirs
