"""Comparison of our request bodies with those of the official SDKs and of pydantic-ai."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, cast

import pytest

from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._adapters.models.google import GoogleModel
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._core.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    user_message,
)
from mudroom._core.ports import Model, RequestConfig
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import ModelServer

from .wires import make_tool

if TYPE_CHECKING:
    # The import of all of them takes five seconds: each function imports what it needs.
    import anthropic
    import openai
    from google import genai
    from google.genai import types as gt
    from pydantic_ai import messages as pm
    from pydantic_ai.models import Model as PydanticModel

pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)
"""Warnings that google-genai itself causes."""

WIRES = ["anthropic", "openai", "google"]
MODELS = {"anthropic": "claude-sonnet-4-6", "openai": "some-model", "google": "gemini-2.5-flash"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Which file."},
        "lines": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["path"],
}


TOOLS = (make_tool("read", SCHEMA), make_tool("grep", SCHEMA))
SIGNED = "c2lnbmF0dXJl"
LOCAL_OPENAI = "openai:127.0.0.1:1"
IMAGE = ImageBlock("image/png", b"\x89PNG of a duck", 640, 480)


def make_corpus(wire: str) -> dict[str, tuple[RequestConfig, list[Message]]]:
    """Return conversations by name, with answers of the given wire."""
    bare = RequestConfig(system="", max_tokens=1000)
    full = RequestConfig(system="Be brief.", tools=TOOLS, max_tokens=1000)
    look = AssistantMessage(
        (TextBlock("Let me look."), ToolCallBlock("a1", "read", {"path": "x.py", "lines": [1, 2]})),
        wire=wire,
    )
    both = AssistantMessage(
        (
            ToolCallBlock("a1", "read", {"path": "ä"}),
            ToolCallBlock("a2", "grep", {"path": "世界 😀"}),
        ),
        wire=wire,
    )
    results = UserMessage(
        (ToolResultBlock("a1", "read", "one\ntwo"), ToolResultBlock("a2", "grep", "three"))
    )
    signed = AssistantMessage(
        (
            ThinkingBlock("Hm.", "reasoning_content" if wire == LOCAL_OPENAI else SIGNED),
            TextBlock("So."),
        ),
        wire=wire,
    )
    bad = AssistantMessage((ToolCallBlock("a1", "read", {}, malformed='{"path": "x'),), wire=wire)
    empty = AssistantMessage((ToolCallBlock("a1", "grep", {}),), wire=wire)
    foreign = AssistantMessage((ThinkingBlock("Hm.", "other"), TextBlock("So.")), wire="elsewhere")
    done = UserMessage((ToolResultBlock("a1", "read", "one"),))
    wrong = UserMessage((ToolResultBlock("a1", "read", "Error: no such file", error=True),))
    return {
        "plain": (bare, [user_message("Hello")]),
        "system": (RequestConfig(system="Be brief.", max_tokens=1000), [user_message("Hello")]),
        "tools offered": (full, [user_message("Hello")]),
        "sampling": (
            RequestConfig(system="", temperature=0.25, max_tokens=321),
            [user_message("Hello")],
        ),
        "nucleus": (RequestConfig(system="", top_p=0.5, max_tokens=321), [user_message("Hello")]),
        "a call and its result": (full, [user_message("Read x.py"), look, done]),
        "parallel calls": (full, [user_message("Read both"), both, results]),
        "an error result": (full, [user_message("Read"), look, wrong]),
        "words beside results": (
            full,
            [
                user_message("Read"),
                both,
                UserMessage((*results.content, TextBlock("Three turns are left."))),
            ],
        ),
        "a call without arguments": (
            full,
            [user_message("Go"), empty, UserMessage((ToolResultBlock("a1", "grep", "x"),))],
        ),
        "malformed arguments": (full, [user_message("Go"), bad, wrong]),
        "thinking": (full, [user_message("Why?"), signed, user_message("Really?")]),
        "thinking of another wire": (
            bare,
            [user_message("Why?"), foreign, user_message("Really?")],
        ),
        "a continued conversation": (
            full,
            [
                user_message("Read"),
                look,
                done,
                AssistantMessage((TextBlock("Done."),), wire=wire),
                user_message("Again"),
                both,
                results,
            ],
        ),
        "unicode": (
            RequestConfig(system="Sé breve — 请简短", max_tokens=1000),
            [user_message('Grüße \u2028 \\ "quoted" \t\n </tag> 😀')],
        ),
        "an image in a prompt": (
            bare,
            [UserMessage((TextBlock("What is this?"), IMAGE, TextBlock("Be brief.")))],
        ),
        "images in results": (
            full,
            [
                user_message("Look at both"),
                both,
                UserMessage(
                    (
                        ToolResultBlock("a1", "read", "a duck", images=(IMAGE, IMAGE)),
                        ToolResultBlock("a2", "grep", "three"),
                        TextBlock("Three turns are left."),
                    )
                ),
            ],
        ),
        "a long word": (bare, [user_message("x" * 100_000)]),
    }


def wrap_malformed(call: ToolCallBlock) -> dict[str, Any]:
    return {"INVALID_JSON": call.malformed} if call.malformed else call.arguments


# --- bodies of the official SDKs, from their natural input


def encode_base64(image: ImageBlock) -> str:
    return base64.b64encode(image.data).decode()


def make_anthropic_image(image: ImageBlock) -> dict[str, Any]:
    source = {"type": "base64", "media_type": image.media_type, "data": encode_base64(image)}
    return {"type": "image", "source": source}


async def send_with_anthropic_sdk(
    client: anthropic.AsyncAnthropic, config: RequestConfig, messages: Sequence[Message]
) -> None:
    from anthropic import omit
    from anthropic.types import ToolParam

    def blocks(message: Message) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        for block in message.content:
            match block:
                case TextBlock():
                    blocks.append({"type": "text", "text": block.text})
                case ImageBlock():
                    blocks.append(make_anthropic_image(block))
                case ToolCallBlock():
                    blocks.append(
                        {
                            "type": "tool_use",
                            "id": block.id,
                            "name": block.name,
                            "input": wrap_malformed(block),
                        }
                    )
                case ToolResultBlock():
                    blocks.append(
                        {
                            "type": "tool_result",
                            "tool_use_id": block.call_id,
                            "content": [
                                {"type": "text", "text": block.text},
                                *map(make_anthropic_image, block.images),
                            ],
                            "is_error": block.error,
                        }
                    )
                case ThinkingBlock() if (
                    isinstance(message, AssistantMessage) and message.wire == "anthropic"
                ):
                    blocks.append(
                        {"type": "thinking", "thinking": block.text, "signature": block.signature}
                    )
                case _:
                    pass
        return blocks

    encoded = [
        {
            "role": "user" if isinstance(message, UserMessage) else "assistant",
            "content": blocks(message),
        }
        for message in messages
    ]
    tools = [
        ToolParam(name=tool.name, description=tool.description, input_schema=tool.parameters)
        for tool in config.tools
    ]
    async with client.messages.stream(
        model=MODELS["anthropic"],
        max_tokens=config.max_tokens or 1,
        messages=cast("Any", encoded),
        system=config.system or omit,
        tools=tools or omit,
        extra_body=make_sampling(config),  # this SDK has no arguments for sampling
    ) as stream:
        await stream.get_final_message()


def make_openai_image(image: ImageBlock) -> dict[str, Any]:
    url = f"data:{image.media_type};base64,{encode_base64(image)}"
    return {"type": "image_url", "image_url": {"url": url}}


def make_openai_content(message: UserMessage) -> str | list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock) and block.images:
            label = f"Images of the result of {block.name} ({block.call_id}):"
            items += [{"type": "text", "text": label}, *map(make_openai_image, block.images)]
        elif isinstance(block, TextBlock):
            items.append({"type": "text", "text": block.text})
        elif isinstance(block, ImageBlock):
            items.append(make_openai_image(block))
    is_plain = len(items) == 1 and items[0]["type"] == "text"
    return items[0]["text"] if is_plain else items


async def send_with_openai_sdk(
    client: openai.AsyncOpenAI, config: RequestConfig, messages: Sequence[Message]
) -> None:
    from openai import omit

    encoded: list[dict[str, Any]] = (
        [{"role": "system", "content": config.system}] if config.system else []
    )
    for message in messages:
        if isinstance(message, UserMessage):
            encoded += [
                {"role": "tool", "tool_call_id": b.call_id, "content": b.text}
                for b in message.content
                if isinstance(b, ToolResultBlock)
            ]
            if content := make_openai_content(message):
                encoded.append({"role": "user", "content": content})
            continue
        entry: dict[str, Any] = {"role": "assistant"}
        if message.text:
            entry["content"] = message.text
        if message.wire == LOCAL_OPENAI and (
            thoughts := "".join(b.text for b in message.content if isinstance(b, ThinkingBlock))
        ):
            entry["reasoning_content"] = thoughts
        if message.tool_calls:
            functions = [
                (call.id, {"name": call.name, "arguments": json.dumps(wrap_malformed(call))})
                for call in message.tool_calls
            ]
            entry["tool_calls"] = [
                {"id": call_id, "type": "function", "function": function}
                for call_id, function in functions
            ]
        encoded.append(entry)
    tools = [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
        }
        for t in config.tools
    ]
    stream = await client.chat.completions.create(
        model=MODELS["openai"],
        messages=cast("Any", encoded),
        tools=cast("Any", tools) or omit,
        max_tokens=config.max_tokens,
        stream=True,
        stream_options={"include_usage": True},
        **make_sampling(config),
    )
    async for _ in stream:
        pass


def make_google_image(image: ImageBlock) -> gt.Part:
    from google.genai import types as gt

    return gt.Part(inline_data=gt.Blob(data=image.data, mime_type=image.media_type))


def make_google_parts(message: Message) -> list[gt.Part]:
    from google.genai import types as gt

    own = isinstance(message, AssistantMessage) and message.wire == "google"
    blocks: list[gt.Part] = []
    images: list[gt.Part] = []
    for block in message.content:
        if images and not isinstance(block, ToolResultBlock):
            blocks += images
            images = []
        match block:
            case TextBlock():
                blocks.append(gt.Part(text=block.text))
            case ImageBlock():
                blocks.append(make_google_image(block))
            case ToolCallBlock():
                blocks.append(
                    gt.Part(
                        function_call=gt.FunctionCall(
                            id=block.id, name=block.name, args=wrap_malformed(block)
                        )
                    )
                )
            case ToolResultBlock():
                response = {"error" if block.error else "result": block.text}
                blocks.append(
                    gt.Part(
                        function_response=gt.FunctionResponse(
                            id=block.call_id, name=block.name, response=response
                        )
                    )
                )
                if block.images:
                    label = f"Images of the result of {block.name} ({block.call_id}):"
                    images += [gt.Part(text=label), *map(make_google_image, block.images)]
            case ThinkingBlock() if own:
                blocks.append(
                    gt.Part(text=block.text, thought=True, thought_signature=b"signature")
                )
            case _:
                pass
    return blocks + images


async def send_with_google_sdk(
    client: genai.client.AsyncClient, config: RequestConfig, messages: Sequence[Message]
) -> None:
    from google.genai import types as gt

    contents = [
        gt.Content(
            role="user" if isinstance(message, UserMessage) else "model",
            parts=make_google_parts(message),
        )
        for message in messages
    ]
    declared = [
        gt.FunctionDeclaration(
            name=t.name, description=t.description, parameters_json_schema=t.parameters
        )
        for t in config.tools
    ]
    google_config = gt.GenerateContentConfig(
        system_instruction=config.system or None,
        tools=[gt.Tool(function_declarations=declared)] if declared else None,
        max_output_tokens=config.max_tokens,
        **make_sampling(config),
    )
    stream = await client.models.generate_content_stream(
        model=MODELS["google"], contents=cast("Any", contents), config=google_config
    )
    async for _ in stream:
        pass


def make_sampling(config: RequestConfig) -> dict[str, Any]:
    return {
        name: value
        for name in ("temperature", "top_p")
        if (value := getattr(config, name)) is not None
    }


def make_client(wire: str, url: str) -> AbstractAsyncContextManager[Any]:
    """Return a client of the provider's SDK."""
    match wire:
        case "anthropic":
            from anthropic import AsyncAnthropic

            return AsyncAnthropic(api_key="k", base_url=url, max_retries=0)
        case "openai":
            from openai import AsyncOpenAI

            return AsyncOpenAI(api_key="k", base_url=url + "/v1", max_retries=0)
        case _:
            from google import genai
            from google.genai import types as gt

            return genai.Client(api_key="k", http_options=gt.HttpOptions(base_url=url)).aio


SDKS: dict[str, Callable[[Any, RequestConfig, Sequence[Message]], Awaitable[None]]] = {
    "anthropic": send_with_anthropic_sdk,
    "openai": send_with_openai_sdk,
    "google": send_with_google_sdk,
}


# --- messages of pydantic-ai


def make_pydantic_model(wire: str, url: str) -> PydanticModel:
    match wire:
        case "anthropic":
            from pydantic_ai.models.anthropic import AnthropicModel as PydanticAnthropic
            from pydantic_ai.providers.anthropic import AnthropicProvider

            provider = AnthropicProvider(api_key="k", base_url=url)
            return PydanticAnthropic(MODELS[wire], provider=provider)
        case "openai":
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai import OpenAIProvider

            provider = OpenAIProvider(api_key="k", base_url=url + "/v1")
            return OpenAIChatModel(MODELS[wire], provider=provider)
        case _:
            from pydantic_ai.models.google import GoogleModel as PydanticGoogle
            from pydantic_ai.providers.google import GoogleProvider

            return PydanticGoogle(MODELS[wire], provider=GoogleProvider(api_key="k", base_url=url))


async def send_with_pydantic_ai(
    wire: str, model: PydanticModel, config: RequestConfig, messages: Sequence[Message]
) -> None:
    from pydantic_ai import messages as pm
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(name=t.name, description=t.description, parameters_json_schema=t.parameters)
        for t in config.tools
    ]
    parameters = ModelRequestParameters(
        function_tools=tools,
        instruction_parts=[pm.InstructionPart(config.system)] if config.system else [],
    )
    settings = {"max_tokens": config.max_tokens, **make_sampling(config)}
    converted = [_make_pydantic_message(wire, message) for message in messages]
    async with (
        model,
        model_request_stream(
            model,
            converted,
            model_settings=cast("Any", settings),
            model_request_parameters=parameters,
        ) as stream,
    ):
        async for _ in stream:
            pass


def _make_pydantic_message(wire: str, message: Message) -> pm.ModelMessage:
    from pydantic_ai import messages as pm

    if isinstance(message, UserMessage):
        parts: list[pm.ModelRequestPart] = []
        prompt: list[pm.UserContent] = []
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                outcome = "failed" if block.error else "success"
                images = [
                    pm.BinaryContent(each.data, media_type=each.media_type) for each in block.images
                ]
                content = [block.text, *images] if images else block.text
                parts.append(pm.ToolReturnPart(block.name, content, block.call_id, outcome=outcome))
            elif isinstance(block, ImageBlock):
                prompt.append(pm.BinaryContent(block.data, media_type=block.media_type))
            else:
                prompt.append(block.text)
        if prompt:
            text = prompt[0] if len(prompt) == 1 and isinstance(prompt[0], str) else prompt
            parts.append(pm.UserPromptPart(text))
        return pm.ModelRequest(parts)
    answers: list[pm.ModelResponsePart] = []
    for block in message.content:
        if isinstance(block, ToolCallBlock):
            answers.append(
                pm.ToolCallPart(block.name, block.malformed or block.arguments, block.id)
            )
        elif isinstance(block, TextBlock):
            answers.append(pm.TextPart(block.text))
        elif isinstance(block, ThinkingBlock) and message.wire in (wire, LOCAL_OPENAI):
            field = "reasoning_content" if wire == "openai" else None
            answers.append(
                pm.ThinkingPart(
                    block.text,
                    id=field,
                    signature=None if field else block.signature,
                    provider_name=wire,
                )
            )
    return pm.ModelResponse(answers, provider_name=wire)


# --- accepted differences, with their reasons


def drop(*keys: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: {key: value for key, value in fields.items() if key not in keys}


def drop_if(key: str, value: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: {
        name: field for name, field in fields.items() if not (name == key and field == value)
    }


def wrap_text(*keys: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: {
        key: [{"type": "text", "text": value}] if key in keys and isinstance(value, str) else value
        for key, value in fields.items()
    }


def parse_arguments(fields: dict[str, Any]) -> dict[str, Any]:
    return (
        fields | {"arguments": json.loads(fields["arguments"])}
        if isinstance(fields.get("arguments"), str)
        else fields
    )


def rename_field(old: str, new: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: {new if key == old else key: value for key, value in fields.items()}


def unwrap_error(fields: dict[str, Any]) -> dict[str, Any]:
    wrapped = fields.get("role") == "tool" and fields["content"].startswith('{"error":')
    return fields | {"content": json.loads(fields["content"])["error"]} if wrapped else fields


def join_neighbours(fields: dict[str, Any]) -> dict[str, Any]:
    if "contents" not in fields:
        return fields
    joined: list[dict[str, Any]] = []
    for content in fields["contents"]:
        if joined and joined[-1]["role"] == content["role"]:
            joined[-1] = joined[-1] | {"parts": joined[-1]["parts"] + content["parts"]}
        else:
            joined.append(content)
    return fields | {"contents": joined}


def drop_role_of_system(fields: dict[str, Any]) -> dict[str, Any]:
    return (
        fields | {"systemInstruction": drop("role")(fields["systemInstruction"])}
        if "systemInstruction" in fields
        else fields
    )


Rule = tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]
RULES: dict[str, list[Rule]] = {
    "anthropic": [
        ("cache marks are ours, or pydantic-ai's; they change no word", drop("cache_control")),
        ("a string is short for one text block", wrap_text("system", "content")),
        ("no error is the default", drop_if("is_error", False)),
    ],
    "openai": [
        ("no content may be null or left out", drop_if("content", None)),
        ("arguments are JSON in a string: spaces in it mean nothing", parse_arguments),
    ],
    "google": [
        ("no reader uses the role of the system instruction", drop_role_of_system),
        (
            "the API takes both spellings of a field; this one is its documentation's",
            rename_field("parameters_json_schema", "parametersJsonSchema"),
        ),
        ("the same holds for the type of an image", rename_field("mime_type", "mimeType")),
    ],
}


PYDANTIC_FRAMES_RESULT_IMAGES = {"openai", "google"}
"""Wires on which pydantic-ai puts its own tags around the images of results, as no API asks for."""


def drop_preface(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the system blocks without the one that newer pydantic-ai adds.

    That block explains system messages in the middle of a conversation.
    """
    blocks = fields.get("system")
    if not isinstance(blocks, list):
        return fields
    converted = [
        block
        for block in cast("list[Any]", blocks)
        if not str(block.get("text", "")).startswith("Mid-conversation system messages")
    ]
    return {
        key: converted if key == "system" else value
        for key, value in fields.items()
        if key != "system" or converted
    }


PYDANTIC_RULES: dict[str, list[Rule]] = {
    "anthropic": [("pydantic-ai explains a frame of its own that we do not use", drop_preface)],
    "openai": [
        ("pydantic-ai closes every schema", drop_if("additionalProperties", False)),
        (
            "pydantic-ai wraps errors in JSON; we send the words, which say that they are an error",
            unwrap_error,
        ),
    ],
    "google": [
        (
            (
                "pydantic-ai moves signatures to the next part, and makes up missing "
                "ones for every model"
            ),
            drop("thoughtSignature"),
        ),
        ("any key may hold a result", rename_field("return_value", "result")),
        ("words beside results are one content or two", join_neighbours),
    ],
}


def normalize(value: Any, rules: Sequence[Rule]) -> Any:
    if isinstance(value, Mapping):
        fields = {
            key: normalize(item, rules) for key, item in cast("Mapping[str, Any]", value).items()
        }
        for _, rule in rules:
            fields = rule(fields)
        return fields
    if isinstance(value, list):
        return [normalize(item, rules) for item in cast("list[Any]", value)]
    return value


def encode_body(wire: str, config: RequestConfig, messages: Sequence[Message]) -> dict[str, Any]:
    http = HttpClient(clock=FakeClock())
    models: dict[str, Model] = {
        "anthropic": AnthropicModel(MODELS["anthropic"], http=http),
        "openai": OpenAIModel(MODELS["openai"], http=http, base_url="http://127.0.0.1:1/v1"),
        "google": GoogleModel(MODELS["google"], http=http),
    }
    conversation: Any = models[wire].start_conversation(config)
    for message in messages:
        conversation.append(message)
    return json.loads(conversation.build_body())


@pytest.mark.parametrize("wire", WIRES)
async def test_our_body_equals_the_body_of_the_official_sdk(wire: str) -> None:
    async with ModelServer(lambda _: "ok") as server, make_client(wire, server.url) as client:
        for name, (config, messages) in make_corpus(
            LOCAL_OPENAI if wire == "openai" else wire
        ).items():
            await SDKS[wire](client, config, messages)
            assert normalize(encode_body(wire, config, messages), RULES[wire]) == normalize(
                server.requests[-1].json, RULES[wire]
            ), name


@pytest.mark.parametrize("wire", WIRES)
async def test_our_messages_equal_the_messages_of_pydantic_ai(wire: str) -> None:
    rules = RULES[wire] + PYDANTIC_RULES[wire]
    async with (
        ModelServer(lambda _: "ok") as server,
        make_pydantic_model(wire, server.url) as model,
    ):
        for name, (config, messages) in make_corpus(
            LOCAL_OPENAI if wire == "openai" else wire
        ).items():
            if name == "images in results" and wire in PYDANTIC_FRAMES_RESULT_IMAGES:
                continue
            await send_with_pydantic_ai(wire, model, config, messages)
            our_fields, their_fields = (
                normalize(body, rules)
                for body in (encode_body(wire, config, messages), server.requests[-1].json)
            )
            for key in ("messages", "contents", "system", "systemInstruction", "tools"):
                assert our_fields.get(key) == their_fields.get(key), f"{name}: {key}"
