"""Reasoning and images that a provider refuses: the conversation goes on without them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.models.wires import (
    ANTHROPIC,
    GOOGLE,
    OLLAMA,
    OPENAI,
    WIRES,
    Wire,
    pair_up,
    refuse,
)

from mudroom import AssistantMessage, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock
from mudroom._adapters.models._wire import WireModel
from mudroom._core.messages import Message, ToolResultBlock, UserMessage, user_message
from mudroom._core.ports import RequestConfig
from mudroom.errors import ModelRefused
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.strict_provider import find_refusals

SEAL = "U0VBTEVE"
IMAGE = ImageBlock("image/png", b"\x89PNG")
# Arguments that look like a block.
ARGUMENTS = {"type": "image", "thought": True}


def make_history(model: WireModel, wire: Wire) -> list[Message]:
    seal = SEAL
    if wire is OPENAI:
        seal = f'reasoning_details:[{{"type":"reasoning.encrypted","data":"{SEAL}"}}]'
    signature = SEAL if wire is GOOGLE else ""
    call = ToolCallBlock("c1", "read", ARGUMENTS, signature=signature)
    answer = AssistantMessage(
        (ThinkingBlock("Hm.", seal), TextBlock("I look."), call), wire=model.wire
    )
    result = ToolResultBlock("c1", "read", "a picture", images=(IMAGE,))
    thought_only = AssistantMessage((ThinkingBlock("Hm.", seal),), wire=model.wire)
    return [
        UserMessage((TextBlock("Look."), IMAGE)),
        answer,
        UserMessage((result,)),
        thought_only,
        user_message("Go on."),
    ]


async def ask(wire: Wire, script: Callable[[ServerRequest], ServerAnswer]) -> list[ServerRequest]:
    """Send the history, and once more with an image; return the requests."""
    async with ModelServer(script) as server:
        path = "/v1beta" if wire is GOOGLE else ""
        model = wire.make_model(base_url=f"{server.url}{path}")
        conversation = model.start_conversation(RequestConfig(system="Be brief."))
        for message in make_history(model, wire):
            conversation.append(message)
        for _ in range(2):
            parts = [part async for part in conversation.request_answer()]
            assert isinstance(parts[-1], AssistantMessage) and parts[-1].text == "Done."
            conversation.append(parts[-1])
            conversation.append(UserMessage((TextBlock("And this?"), IMAGE)))
        await model.close()
    return server.requests


@pytest.mark.parametrize(
    ("wire", "text"),
    pair_up(
        [each for each in WIRES if each is not OLLAMA],
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.3.content.0.thinking.signature: Field required",
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant "
        "message cannot be modified.",
        "The encrypted content gAAA could not be verified. Reason: Encrypted content could not be "
        "decrypted or parsed.",
        "Thought signature is not valid.",
    ),
)
async def test_sealed_reasoning_of_another_account_is_left_out(wire: Wire, text: str) -> None:
    def script(request: ServerRequest) -> ServerAnswer:
        return refuse(text) if SEAL.encode() in request.body else "Done."

    requests = await ask(wire, script)
    assert [SEAL.encode() in each.body for each in requests] == [True, False, False]
    assert [find_refusals(each) for each in requests[1:]] == [[], []]
    assert b"I look." in requests[1].body and b"Be brief." in requests[1].body
    calls = [json.dumps(ARGUMENTS, separators=(",", ":")), json.dumps(json.dumps(ARGUMENTS))]
    sent = requests[1].body.decode()
    assert any(call in sent or call.replace(" ", "") in sent for call in calls)


def has_image(request: ServerRequest) -> bool:
    return b"iVBORw" in request.body


@pytest.mark.parametrize(
    ("wire", "text"),
    pair_up(
        WIRES,
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 9 bytes > 5 bytes",
        "At least one of the image dimensions exceed max allowed size: 8000 pixels",
        "Could not process image",
        "You uploaded an unsupported image. Please make sure your image is valid.",
        "Provided image is not valid.",
        "At most 1 image(s) may be provided in one prompt.",
        "Too many images in request: 101 images > 100",
    ),
)
async def test_an_image_that_was_refused_does_not_end_the_session(wire: Wire, text: str) -> None:
    count = 0

    def script(request: ServerRequest) -> ServerAnswer:
        nonlocal count
        count += 1
        return refuse(text) if count == 1 else "Done."

    requests = await ask(wire, script)
    # The next image is sent: it may be a good one.
    assert [has_image(each) for each in requests] == [True, False, True]
    assert [find_refusals(each) for each in requests[1:]] == [[], []]
    assert b"the provider refused" in requests[1].body and b"a picture" in requests[1].body


@pytest.mark.parametrize(
    ("wire", "text"),
    pair_up(
        WIRES,
        "This model does not support image inputs",
        "No endpoints found that support image input",
        "Invalid content type. image_url is only supported by certain models.",
        "unknown variant `image_url`, expected `text`",
    ),
)
async def test_a_model_without_images_gets_no_more_of_them(wire: Wire, text: str) -> None:
    requests = await ask(wire, lambda each: refuse(text) if has_image(each) else "Done.")
    assert [has_image(each) for each in requests] == [True, False, False]


async def test_cache_marks_move_with_the_messages_that_remain() -> None:
    thought = AssistantMessage((ThinkingBlock("Hm. " * 50, SEAL),), wire="anthropic")
    refusal = refuse("Invalid `signature` in `thinking` block")
    answers: list[ServerAnswer] = ["Done.", refusal]
    async with ModelServer(lambda _: answers.pop()) as server:
        model = ANTHROPIC.make_model(base_url=server.url)
        thought = replace(thought, wire=model.wire)
        conversation = model.start_conversation(RequestConfig(system=""))
        for number in range(3):
            conversation.append(user_message(f"Prompt {number}."))
            conversation.append(thought)
        conversation.append(user_message("Go on."))
        assert [part async for part in conversation.request_answer()]
        await model.close()
    *_, last = server.requests[-1].messages
    assert [each["role"] for each in server.requests[-1].messages] == ["user"] * 4
    assert "cache_control" in last["content"][-1]


async def test_a_refusal_of_what_is_not_there_ends_the_request() -> None:
    text = "Invalid `signature` in `thinking` block"
    async with ModelServer(lambda _: refuse(text)) as server:
        model = ANTHROPIC.make_model(base_url=server.url)
        conversation = model.start_conversation(RequestConfig(system=""))
        for message in make_history(model, ANTHROPIC):
            conversation.append(message)
        with pytest.raises(ModelRefused, match="signature"):
            _: Any = [part async for part in conversation.request_answer()]
        await model.close()
    assert server.request_count == 2
