"""Tests of images: how each wire sends them, and placeholders for models that take none."""

from __future__ import annotations

import base64

import msgspec
import pytest
from pydantic_ai import messages as pm

from mudroom._adapters.models._tool_names import ToolNames
from mudroom._adapters.models.providers import PROVIDERS, parse_model_name, takes_images
from mudroom._adapters.models.pydantic_ai import to_model_request
from mudroom._core.messages import (
    ImageBlock,
    TextBlock,
    ToolResultBlock,
    UserMessage,
)

from .wires import ANTHROPIC, GOOGLE, OPENAI

IMAGE = ImageBlock("image/png", b"\x89PNG" * 3000, 640, 480)
PLACEHOLDER = "[image: image/png, 640x480, 12 KB]"
MESSAGE = UserMessage(
    (
        ToolResultBlock("a1", "read", "duck.png", images=(IMAGE,)),
        TextBlock("What is this?"),
        IMAGE,
    )
)
MISTRAL = "https://api.mistral.ai/v1"


def test_a_placeholder_names_type_size_and_bytes() -> None:
    assert IMAGE.placeholder == PLACEHOLDER
    assert ImageBlock("image/gif", b"x").placeholder == "[image: image/gif, 1 KB]"


def test_an_image_survives_json() -> None:
    body = msgspec.json.encode(MESSAGE)
    assert b"iVBOR4lQTkeJUE5H" in body
    assert msgspec.json.decode(body, type=UserMessage) == MESSAGE


def test_a_failed_call_has_no_image_on_the_anthropic_wire() -> None:
    failed = ToolResultBlock("a1", "read", "too large", error=True, images=(IMAGE,))
    (message,) = ANTHROPIC.get_messages(UserMessage((failed,)))
    assert message["content"][0]["content"] == "too large"


def test_a_result_without_text_has_only_its_image_on_the_anthropic_wire() -> None:
    result = ToolResultBlock("a1", "read", "", images=(IMAGE,))
    (message,) = ANTHROPIC.get_messages(UserMessage((result,)))
    (block,) = message["content"][0]["content"]
    assert block["type"] == "image"


BOTH = UserMessage(
    (
        ToolResultBlock("a1", "read", "duck.png", images=(IMAGE,)),
        ToolResultBlock("a2", "read", "one line"),
        TextBlock("What is this?"),
    )
)
LABEL = "Images of the result of read (a1):"


def test_images_of_results_follow_all_results_on_wires_whose_results_are_texts() -> None:
    data = base64.b64encode(IMAGE.data).decode()
    *results, last = OPENAI.get_messages(BOTH)
    assert [(each["tool_call_id"], each["content"]) for each in results] == [
        ("a1", "duck.png"),
        ("a2", "one line"),
    ]
    assert last["content"] == [
        {"type": "text", "text": LABEL},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "text", "text": "What is this?"},
    ]
    (content,) = GOOGLE.get_messages(BOTH)
    first, second, *others = content["parts"]
    assert first["functionResponse"]["response"] == {"result": "duck.png"}
    assert second["functionResponse"]["response"] == {"result": "one line"}
    assert others == [
        {"text": LABEL},
        {"inlineData": {"mimeType": "image/png", "data": data}},
        {"text": "What is this?"},
    ]


def test_a_strict_server_gets_the_images_of_a_result_in_the_tool_message() -> None:
    (entry,) = OPENAI.get_messages(MESSAGE, base_url=MISTRAL)
    assert entry["role"] == "tool"
    kinds = [item["type"] for item in entry["content"]]
    assert kinds == ["text", "text", "image_url", "text", "image_url"]


def test_pydantic_ai_gets_images_as_binary_content() -> None:
    result, prompt = to_model_request(MESSAGE, ToolNames([])).parts
    content = pm.BinaryContent(IMAGE.data, media_type="image/png")
    assert isinstance(result, pm.ToolReturnPart)
    assert isinstance(prompt, pm.UserPromptPart)
    assert result.content == ["duck.png", content]
    assert prompt.content == ["What is this?", content]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sonnet", True),
        ("gpt-6.1-sol", True),
        ("gpt-3.5-turbo", False),
        ("openrouter:anthropic/claude-sonnet-4.5", True),
        ("bedrock:us.anthropic.claude-sonnet-4-5", True),
        ("groq:openai/gpt-oss-120b", False),
        ("grok-4", True),
        ("ollama:llava:7b", False),
        ("offline", False),
    ],
)
def test_known_model_families_take_images(name: str, expected: bool) -> None:
    provider, model = parse_model_name(name)
    assert takes_images(PROVIDERS[provider], model) is expected
