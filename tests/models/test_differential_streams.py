"""Comparison of our stream readers with the official SDKs and pydantic-ai on the same bytes.

The SDKs take seconds to import. A test imports those that it uses, or each worker process of the
test run would import all of them.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec import Struct

from mudroom._adapters.models._http import SseParser, StreamReader
from mudroom._adapters.models._tool_names import ToolNames
from mudroom._adapters.models.anthropic import AnthropicReader
from mudroom._adapters.models.google import GoogleReader
from mudroom._adapters.models.openai._chat_stream import OpenAIReader
from mudroom._core.messages import (
    AssistantMessage,
    ProviderBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from mudroom.testing.model_server import Fault, ModelServer
from mudroom.testing.wire_formats import WireAnswer, anthropic_stream, google_stream, openai_stream

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticModel

pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)
"""Warnings that google-genai itself causes."""

SEAL = base64.b64encode(b"signature").decode()
WRITERS = {"anthropic": anthropic_stream, "openai": openai_stream, "google": google_stream}


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
    *((wire, "words", b"".join(write(WORDS))) for wire, write in WRITERS.items()),
    *((wire, "calls", b"".join(write(CALLS))) for wire, write in WRITERS.items()),
]


def read_with_mudroom(wire: str, data: bytes) -> ReadResult:
    names = ToolNames(())
    readers: dict[str, StreamReader] = {
        "anthropic": AnthropicReader("m", names),
        "openai": OpenAIReader("m", names),
        "google": GoogleReader("m", names),
    }
    reader = readers[wire]
    sse = SseParser()
    for event in (*sse.feed(data), *sse.flush()):
        reader.feed(event)
    answer: AssistantMessage = reader.finish()
    return ReadResult(
        "".join(block.text for block in answer.content if isinstance(block, ThinkingBlock)),
        answer.text,
        [(call.id, call.name, call.arguments) for call in answer.tool_calls],
        [
            block.signature
            for block in answer.content
            if not isinstance(block, ProviderBlock) and block.signature and wire != "openai"
        ],
        (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cache_read_tokens),
    )


# --- the official SDKs


async def read_with_anthropic_sdk(url: str) -> ReadResult:
    import anthropic

    async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as client:
        async with client.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        ) as stream:
            message = await stream.get_final_message()
    usage = message.usage
    thoughts = [block for block in message.content if block.type == "thinking"]
    read = usage.cache_read_input_tokens or 0
    return ReadResult(
        "".join(block.thinking for block in thoughts),
        "".join(block.text for block in message.content if block.type == "text"),
        [
            (block.id, block.name, cast("dict[str, Any]", block.input))
            for block in message.content
            if block.type == "tool_use"
        ],
        [block.signature for block in thoughts],
        (
            usage.input_tokens + read + (usage.cache_creation_input_tokens or 0),
            usage.output_tokens,
            read,
        ),
    )


async def read_with_openai_sdk(url: str) -> ReadResult:
    import openai

    async with openai.AsyncOpenAI(api_key="k", base_url=url + "/v1", max_retries=0) as client:
        async with client.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "Hi"}]
        ) as stream:
            completion = await stream.get_final_completion()
    message = completion.choices[0].message
    usage = completion.usage
    assert usage is not None
    calls = [call.model_dump() for call in message.tool_calls or ()]
    details = usage.prompt_tokens_details
    return ReadResult(
        (message.model_extra or {}).get("reasoning_content", ""),
        message.content or "",
        [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in calls
        ],
        [],
        (
            usage.prompt_tokens,
            usage.completion_tokens,
            (details.cached_tokens or 0) if details else 0,
        ),
    )


async def read_with_google_sdk(url: str) -> ReadResult:
    from google import genai
    from google.genai import types as gt

    parts: list[gt.Part] = []
    usage = gt.GenerateContentResponseUsageMetadata()
    async with genai.Client(api_key="k", http_options=gt.HttpOptions(base_url=url)).aio as client:
        async for chunk in await client.models.generate_content_stream(model="m", contents="Hi"):
            parts += (
                (chunk.candidates[0].content.parts or [])
                if chunk.candidates and chunk.candidates[0].content
                else []
            )
            usage = chunk.usage_metadata or usage
    calls = [part.function_call for part in parts if part.function_call]
    return ReadResult(
        "".join(part.text or "" for part in parts if part.thought),
        "".join(part.text or "" for part in parts if not part.thought),
        [(call.id or "", call.name or "", call.args or {}) for call in calls],
        [
            base64.b64encode(part.thought_signature).decode()
            for part in parts
            if part.thought_signature
        ],
        (
            usage.prompt_token_count or 0,
            (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
            usage.cached_content_token_count or 0,
        ),
    )


SDKS = {
    "anthropic": read_with_anthropic_sdk,
    "openai": read_with_openai_sdk,
    "google": read_with_google_sdk,
}


def make_pydantic_model(wire: str, url: str) -> PydanticModel:
    match wire:
        case "anthropic":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            return AnthropicModel("m", provider=AnthropicProvider(api_key="k", base_url=url))
        case "openai":
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai import OpenAIProvider

            return OpenAIChatModel("m", provider=OpenAIProvider(api_key="k", base_url=f"{url}/v1"))
        case _:
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            return GoogleModel("m", provider=GoogleProvider(api_key="k", base_url=url))


async def read_with_pydantic_ai(wire: str, url: str) -> ReadResult:
    from pydantic_ai import messages as pm
    from pydantic_ai.direct import model_request_stream

    model = make_pydantic_model(wire, url)
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
    ("wire", "name", "data"), RECORDED, ids=[f"{wire}-{name}" for wire, name, _ in RECORDED]
)
async def test_our_reader_agrees_with_the_official_sdk_and_pydantic_ai(
    wire: str, name: str, data: bytes
) -> None:
    async with ModelServer(lambda _: Fault(body=data, content_type="text/event-stream")) as server:
        theirs = await SDKS[wire](server.url)
        third = await read_with_pydantic_ai(wire, server.url)
    assert read_with_mudroom(wire, data) == theirs
    assert read_with_mudroom(wire, data) == third
