"""Images in prompts: of the native API, and of both ways to ask in OpenAI's API."""

from __future__ import annotations

import base64
from typing import Any

import openai
import pytest

from mudroom._core.messages import ImageBlock, TextBlock
from mudroom.testing import Request

from .conftest import MakeSite
from .test_openai_client import ASK, open_client

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
"""An image of one pixel."""
URL = f"data:image/png;base64,{PNG}"
IMAGE: Any = {"type": "image_url", "image_url": {"url": URL}}
INPUT: Any = {"type": "input_image", "image_url": URL, "detail": "auto"}


def describe(request: Request) -> str:
    """Answer with the blocks of the last prompt that begin with a text of the user."""
    shown: list[str] = []
    for block in request.messages[-1].content:
        if isinstance(block, TextBlock):
            shown.append(block.text)
        elif isinstance(block, ImageBlock):
            assert block.data == base64.b64decode(PNG)
            shown.append(block.media_type)
    return " | ".join(shown)


async def test_a_prompt_has_images_in_their_places(make_site: MakeSite) -> None:
    async with make_site(describe).connect() as client:
        parts = [
            {"type": "text", "text": "This:"},
            {"type": "image", "data": PNG},
            {"type": "text", "text": "What is it?"},
        ]
        session = (await client.create(prompt=parts))["id"]
        await client.finish(session)
        await client.post(session, "user.message", text=parts[1:])
        await client.finish(session)
        events = await client.list_events(session, "?kinds=run_finished")
        texts = [each["report"]["text"] for each in events]
        assert texts == ["This: | image/png | What is it?", "image/png | What is it?"]
        for wrong in (
            [],
            [{"type": "image", "data": "!"}],
            [{"type": "image", "data": base64.b64encode(b"no image").decode()}],
            [{"type": "audio"}],
        ):
            status, value = await client.send("POST", "/v1/sessions", {"prompt": wrong})
            assert (status, value["error"]["code"]) == (400, "wrong_request"), wrong


async def test_the_official_client_sends_images(make_site: MakeSite) -> None:
    async with open_client(make_site(describe)) as (official, _):
        content: Any = [{"type": "text", "text": "What is it?"}, IMAGE]
        messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user"}]
        messages[1]["content"] = content
        answer = await official.chat.completions.create(model="mudroom", messages=messages)
        assert answer.choices[0].message.content == "Be brief.\n\nWhat is it? | image/png"
        messages = [*messages, {"role": "assistant", "content": "A dot."}, *messages[1:]]
        answer = await official.chat.completions.create(model="mudroom", messages=messages)
        assert answer.choices[0].message.content == (
            "The conversation so far:\n\nsystem: Be brief.\n\nuser: What is it? | image/png"
            " | assistant: A dot.\n\nNow answer this:\n\nWhat is it? | image/png"
        )
        parts: Any = [{"role": "user", "content": [INPUT, {"type": "input_text", "text": "This?"}]}]
        response = await official.responses.create(
            model="mudroom", input=parts, instructions="Say."
        )
        assert response.output_text == "Say. | image/png | This?"


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}, "no addresses"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}}, "not in base64"),
        ({"type": "image_url", "image_url": {"url": "data:;base64,aGk="}}, "not a complete PNG"),
        ({"type": "input_image", "file_id": "file-x"}, "no data URL"),
    ],
)
async def test_wrong_images_are_refused(make_site: MakeSite, part: Any, message: str) -> None:
    async with open_client(make_site([])) as (official, _):
        messages: Any = [{"role": "user", "content": [part]}]
        with pytest.raises(openai.BadRequestError, match=message):
            await official.chat.completions.create(model="mudroom", messages=messages)


async def test_a_prompt_that_no_run_can_take_is_a_wrong_request(make_site: MakeSite) -> None:
    site = make_site([], agents=[])
    async with open_client(site) as (official, _):
        with pytest.raises(openai.BadRequestError, match="unknown agent 'reader'"):
            await official.chat.completions.create(model="reader", messages=ASK)
        site.project.rmdir()
        with pytest.raises(openai.InternalServerError, match="project"):
            await official.chat.completions.create(model="mudroom", messages=ASK)
