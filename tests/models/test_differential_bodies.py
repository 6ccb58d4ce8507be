"""Comparison of our request bodies with those of pydantic-ai.

It sends them with the official SDKs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec.structs import replace

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
from mudroom._core.ports import RequestConfig
from mudroom.testing.model_server import ModelServer

from .wires import ANTHROPIC, GOOGLE, OPENAI, RESPONSES, make_pydantic_model, make_tool

if TYPE_CHECKING:
    # The import of all of them takes five seconds: each function imports what it needs.
    from pydantic_ai import messages as pm
    from pydantic_ai.models import Model as PydanticModel

pytestmark = [
    # google-genai itself causes this one.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Sampling parameters:UserWarning"),
]

MODELS = {
    "anthropic": replace(ANTHROPIC, model="claude-sonnet-4-6"),
    "openai": replace(OPENAI, model="some-model"),
    "openai-responses": RESPONSES,
    "google": GOOGLE,
}
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
    }


def make_sampling(config: RequestConfig) -> dict[str, Any]:
    return {
        name: value
        for name in ("temperature", "top_p")
        if (value := getattr(config, name)) is not None
    }


# --- messages of pydantic-ai


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
    converted = [_make_pydantic_message(wire, model.system, message) for message in messages]
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


def _make_pydantic_message(wire: str, system: str, message: Message) -> pm.ModelMessage:
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
        elif isinstance(block, ThinkingBlock) and message.wire != "elsewhere":
            seal = None if wire == "openai" else block.signature
            name = THINKING_IDS.get(wire)
            answers.append(
                pm.ThinkingPart(block.text, id=name, signature=seal, provider_name=system)
            )
    return pm.ModelResponse(answers, provider_name=system)


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
    return fields | {
        key: json.loads(value)["error"]
        for key, value in fields.items()
        if key in ("content", "output") and str(value).startswith('{"error":')
    }


def unwrap_text(fields: dict[str, Any]) -> dict[str, Any]:
    match fields:
        case {"content": [{"type": "input_text" | "output_text", "text": text}]}:
            return fields | {"content": text}
        case _:
            return fields


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
THINKING_IDS = {"openai": "reasoning_content", "openai-responses": "rs"}
LIMIT_NAMES = ("max_completion_tokens", "max_tokens")


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


WRAPPED_ERRORS: Rule = (
    "pydantic-ai wraps errors in JSON; we send the words, which say that they are an error",
    unwrap_error,
)
CLOSED_SCHEMAS: Rule = (
    "pydantic-ai closes every schema",
    drop_if("additionalProperties", False),
)
FREE_CHOICE: Rule = ("a free choice of tools is the default", drop_if("tool_choice", "auto"))
RULES: dict[str, list[Rule]] = {
    "anthropic": [
        ("cache marks are ours, or pydantic-ai's; they change no word", drop("cache_control")),
        ("a string is short for one text block", wrap_text("system", "content")),
        ("no error is the default", drop_if("is_error", False)),
        ("pydantic-ai explains a frame of its own that we do not use", drop_preface),
        ("pydantic-ai says what is the default", drop_if("tool_choice", {"type": "auto"})),
    ],
    "openai": [
        ("no content may be null or left out", drop_if("content", None)),
        ("arguments are JSON in a string: spaces in it mean nothing", parse_arguments),
        ("only OpenAI itself needs the newer name", rename_field(*LIMIT_NAMES)),
        WRAPPED_ERRORS,
        CLOSED_SCHEMAS,
        FREE_CHOICE,
    ],
    "openai-responses": [
        ("arguments are JSON in a string: spaces in it mean nothing", parse_arguments),
        ("a string is short for one text", unwrap_text),
        ("an item with a role is a message", drop_if("type", "message")),
        ("we keep nothing at the provider", drop_if("store", False)),
        ("the detail of images is the default", drop_if("detail", "auto")),
        ("an id of reasoning means nothing where nothing is stored", drop_if("id", "rs")),
        WRAPPED_ERRORS,
        CLOSED_SCHEMAS,
        FREE_CHOICE,
    ],
    "google": [
        ("no reader uses the role of the system instruction", drop_role_of_system),
        (
            "the API takes both spellings of a field; this one is its documentation's",
            rename_field("parameters_json_schema", "parametersJsonSchema"),
        ),
        ("the same holds for the type of an image", rename_field("mime_type", "mimeType")),
        (
            "pydantic-ai moves signatures, and makes up missing ones for every model",
            drop("thoughtSignature"),
        ),
        ("any key may hold a result", rename_field("return_value", "result")),
        ("words beside results are one content or two", join_neighbours),
        ("pydantic-ai says what are the defaults", drop("responseModalities", "toolConfig")),
    ],
}


PYDANTIC_FRAMES_RESULT_IMAGES = {"openai", "google"}
"""Wires on which pydantic-ai puts its own tags around the images of results, as no API asks for."""


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


@pytest.mark.parametrize("name", MODELS)
async def test_our_bodies_equal_those_of_pydantic_ai(name: str) -> None:
    wire, rules = MODELS[name], RULES[name]
    async with (
        ModelServer(lambda _: "ok") as server,
        make_pydantic_model(name, wire.model, server.url) as model,
    ):
        for case, (config, messages) in make_corpus(wire.make_model().wire).items():
            if case == "images in results" and name in PYDANTIC_FRAMES_RESULT_IMAGES:
                continue
            await send_with_pydantic_ai(name, model, config, messages)
            ours, theirs = (
                normalize(body, rules)
                for body in (wire.build(*messages, config=config), server.requests[-1].json)
            )
            assert ours == theirs, case
