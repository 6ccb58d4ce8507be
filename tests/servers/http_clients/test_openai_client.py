"""The official client of OpenAI drives an agent with subagents, and sends images."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from mudroom._core.messages import ImageBlock, TextBlock, ToolCallBlock
from mudroom.errors import ModelRefused
from mudroom.testing import Request, call

from ..gate import Gate
from .conftest import Client, MakeSite, Site

ASK: Any = [{"role": "user", "content": "Ask."}]
SCHEMA: Any = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, ""),
    ({"n": 2}, ""),
    ({"response_format": {"type": "json_object"}}, ""),
    ({"messages": [{"role": "system", "content": "x"}]}, ""),
]
"""Fields that would change the answer."""
WRONG_IMAGES: list[tuple[dict[str, Any], str]] = [
    ({"type": "image_url", "image_url": {}}, ""),
    ({"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}, "no addresses"),
    ({"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}}, "not in base64"),
    ({"type": "image_url", "image_url": {"url": "data:;base64,aGk="}}, "not a complete PNG"),
    ({"type": "input_image", "file_id": "file-x"}, "no data URL"),
]
"""Parts of a prompt, and words of the error."""
EMIT = call("self.emitvalue", emit_variable_name="title", emit_variable_value="On Mud")


PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
"""An image of one pixel."""
URL = f"data:image/png;base64,{PNG}"
IMAGE: Any = {"type": "image_url", "image_url": {"url": URL}}
INPUT: Any = {"type": "input_image", "image_url": URL, "detail": "auto"}


def make_script(request: Request) -> Any:
    if "Look" in request.prompt:
        return f"Child says {request.prompt[-2]}."
    if request.turn == 0:
        return [
            ToolCallBlock(f"t{number}", "task", {"prompt": f"Look {number}.", "agent": "reader"})
            for number in range(2)
        ]
    return f"Parent after {sum(len(str(m)) > 0 for m in request.messages) > 2}."


@asynccontextmanager
async def open_client(site: Site, **rights: Any) -> AsyncGenerator[tuple[AsyncOpenAI, Client]]:
    async with (
        site.connect(**rights) as client,
        AsyncOpenAI(
            base_url=f"{client.url}/v1", api_key=client.token, max_retries=0, timeout=60
        ) as official,
    ):
        yield official, client


async def test_a_completion_is_the_answer_of_an_agent_with_subagents(make_site: MakeSite) -> None:
    async with open_client(make_site(make_script)) as (official, client):
        answer = await official.chat.completions.create(model="mudroom", messages=ASK)
        assert answer.choices[0].message.content == "Parent after True."
        assert answer.choices[0].finish_reason == "stop"
        session = (await client.get("/v1/sessions"))["data"][0]
        assert answer.id == f"chatcmpl-{session['id']}"
        assert len(await client.list_events(session["id"], "?kinds=run_finished")) == 3
        assert answer.usage
        assert answer.usage.total_tokens == session["tokens"] > 0
        stream = await official.chat.completions.create(
            model="mudroom", messages=ASK, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(pieces) == "Parent after True."
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage
        assert chunks[-1].usage.total_tokens > 0


async def test_responses_are_a_conversation(make_site: MakeSite) -> None:
    site = make_site(["One.", "Two."])
    async with open_client(site) as (official, _):
        first = await official.responses.create(model="mudroom", input="First.")
        assert (first.output_text, first.status) == ("One.", "completed")
        second = await official.responses.create(
            model="mudroom", input="Second.", previous_response_id=first.id
        )
        assert second.output_text == "Two."
        assert len(site.model.requests[1].messages) == 3
        again = await official.responses.retrieve(first.id)
        assert again.output_text == "One."
        with pytest.raises(openai.ConflictError):
            await official.responses.create(
                model="mudroom", input="Third.", previous_response_id=first.id
            )
        with pytest.raises(openai.BadRequestError, match="has the agent 'mudroom'"):
            await official.responses.create(
                model="reader", input="Third.", previous_response_id=second.id
            )


async def test_a_response_is_streamed(make_site: MakeSite) -> None:
    async with open_client(make_site(make_script)) as (official, _):
        text = ""
        kinds: list[str] = []
        async with official.responses.stream(model="mudroom", input="Ask.") as stream:
            async for event in stream:
                kinds.append(event.type)
                if event.type == "response.output_text.delta":
                    text += event.delta
            final = await stream.get_final_response()
        assert text == final.output_text == "Parent after True."
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"


async def test_answers_have_a_schema(make_site: MakeSite) -> None:
    script = [[EMIT], "Done.", [EMIT], "Done.", [EMIT], "Done."]
    async with open_client(make_site(script)) as (official, _):
        form: Any = {"type": "json_schema", "json_schema": {"name": "title", "schema": SCHEMA}}
        answer = await official.chat.completions.create(
            model="mudroom", messages=ASK, response_format=form
        )
        assert answer.choices[0].message.content == '{"title":"On Mud"}'
        text: Any = {"format": {"type": "json_schema", "name": "title", "schema": SCHEMA}}
        response = await official.responses.create(model="mudroom", input="Ask.", text=text)
        assert response.output_text == '{"title":"On Mud"}'
        stream = await official.chat.completions.create(
            model="mudroom", messages=ASK, response_format=form, stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(pieces) == '{"title":"On Mud"}'


async def test_models_are_agents(make_site: MakeSite) -> None:
    async with open_client(make_site(["Read."])) as (official, _):
        assert [model.id async for model in official.models.list()] == ["mudroom", "reader"]
        assert (await official.models.retrieve("reader")).id == "reader"
        answer = await official.chat.completions.create(model="reader", messages=ASK)
        assert answer.choices[0].message.content == "Read."
        with pytest.raises(openai.NotFoundError, match="no agent 'gpt-5'"):
            await official.chat.completions.create(model="gpt-5", messages=ASK)
        with pytest.raises(openai.NotFoundError, match="no agent 'gpt-5'"):
            await official.responses.create(model="gpt-5", input="Ask.")


async def test_a_conversation_of_the_client_is_one_prompt(make_site: MakeSite) -> None:
    site = make_site(["Answer."])
    messages: Any = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "First?"}]},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Second?"},
    ]
    async with open_client(site) as (official, _):
        raw = await official.chat.completions.with_raw_response.create(
            model="mudroom", messages=messages, temperature=0.5
        )
        assert raw.headers["Mudroom-Not-Used"] == "temperature"
        prompt = site.model.requests[0].prompt
        assert prompt.index("Be short.") < prompt.index("assistant: Yes.") < prompt.index("Second?")


async def test_fields_that_would_change_the_answer_and_wrong_images_are_refused(
    make_site: MakeSite,
) -> None:
    cases = [*REFUSED]
    for part, message in WRONG_IMAGES:
        cases.append(({"messages": [{"role": "user", "content": [part]}]}, message))
    async with open_client(make_site([])) as (official, _):
        for fields, message in cases:
            body: dict[str, Any] = {"model": "mudroom", "messages": ASK, **fields}
            with pytest.raises(openai.BadRequestError, match=message or None):
                await official.chat.completions.create(**body)


async def test_failures_are_errors_of_the_client(make_site: MakeSite) -> None:
    def fail(_: Request) -> Any:
        raise ModelRefused("the key is wrong")

    async with open_client(make_site(fail)) as (official, _):
        with pytest.raises(openai.InternalServerError, match="the key is wrong"):
            await official.chat.completions.create(model="mudroom", messages=ASK)
        with pytest.raises(openai.APIError, match="the key is wrong"):
            stream = await official.chat.completions.create(
                model="mudroom", messages=ASK, stream=True
            )
            async for _chunk in stream:
                pass
        events = [
            event
            async for event in await official.responses.create(
                model="mudroom", input="Ask.", stream=True
            )
        ]
        assert events[-1].type == "response.failed"
    async with open_client(make_site([])) as (official, _):
        with pytest.raises(openai.AuthenticationError):
            await official.with_options(api_key="wrong").models.list()


async def test_a_client_that_goes_away_stops_its_prompt(make_site: MakeSite) -> None:
    gate = Gate()
    async with open_client(make_site(gate)) as (official, client):
        request = asyncio.create_task(
            official.chat.completions.create(model="mudroom", messages=ASK)
        )
        await gate.asked.wait()
        request.cancel()
        session = (await client.get("/v1/sessions"))["data"][0]["id"]
        assert (await client.finish(session))["last"]["reason"] == "CANCELLED"


def describe(request: Request) -> str:
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


async def test_a_prompt_that_no_run_can_take_is_a_wrong_request(make_site: MakeSite) -> None:
    site = make_site([], agents=[])
    async with open_client(site) as (official, _):
        with pytest.raises(openai.BadRequestError, match="unknown agent 'reader'"):
            await official.chat.completions.create(model="reader", messages=ASK)
        site.project.rmdir()
        with pytest.raises(openai.InternalServerError, match="project"):
            await official.chat.completions.create(model="mudroom", messages=ASK)
