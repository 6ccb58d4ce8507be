"""Prompts with images: the request on every wire, the journal, resume, replay, export, refusals."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Sequence

import pytest

from mudroom import ImageBlock, ModelOptions, Session, TextBlock, UsageError
from mudroom._core.messages import UserBlock
from mudroom._projections.claude import ClaudeTranscripts
from mudroom._projections.transcript import build_transcript
from mudroom._replay import replay
from mudroom.events import RunStarted
from mudroom.testing import MemoryJournal, Request, ScriptedModel
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from ..worker_kinds import WORKERS
from .conftest import IsolatedOptions


def make_png(width: int, height: int) -> bytes:
    """Return the bytes of a red PNG image."""

    def encode_chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (
        encode_chunk(b"IHDR", header) + encode_chunk(b"IDAT", rows) + encode_chunk(b"IEND", b"")
    )
    return b"\x89PNG\r\n\x1a\n" + chunks


PNG = make_png(3, 2)
IMAGE = ImageBlock("image/png", PNG, 3, 2)
PROMPT = [TextBlock("What is this?"), ImageBlock("image/png", PNG), TextBlock("Be brief.")]
BLOCKS = (PROMPT[0], IMAGE, PROMPT[2])
TEXT = f"What is this?\n\n{IMAGE.placeholder}\n\nBe brief."

WIRES = {
    "anthropic:claude-sonnet-4-5": ("ANTHROPIC", ""),
    "openai:gpt-4o": ("OPENAI", "/v1"),
    "google:gemini-2.5-flash": ("GEMINI", "/v1beta"),
}


def get_user_blocks(request: Request) -> Sequence[UserBlock]:
    return request.messages[0].content  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("worker", WORKERS)
async def test_blocks_of_a_prompt_reach_the_model_in_their_order(
    worker: str, isolated: IsolatedOptions
) -> None:
    model = ScriptedModel(lambda request: "a red image")
    async with Session(model=model, worker=worker, journal="memory", **isolated) as session:
        await session.run(PROMPT)
        await session.task(PROMPT)
        await session.map([PROMPT, "no image"])
        async with session.stream(PROMPT) as stream:
            async for _ in stream:
                pass
    prompts = [request.messages[-1].content for request in model.requests]
    assert prompts.count(BLOCKS) == 4
    assert (TextBlock("no image"),) in prompts


async def test_the_image_is_in_the_record_and_in_all_that_is_made_of_it(
    isolated: IsolatedOptions,
) -> None:
    journal = MemoryJournal()
    async with Session(model=ScriptedModel(["red"]), journal=journal, **isolated) as session:
        await session.run(PROMPT)
    (started,) = [event for event in journal.events if isinstance(event, RunStarted)]
    assert started.brief.prompt == TEXT
    assert started.brief.content == BLOCKS
    assert build_transcript(journal.events, "1")[0].content == BLOCKS
    await replay(journal.events)
    transcripts = ClaudeTranscripts(session.id)
    for event in journal.events:
        transcripts.apply(event)
    (lines,) = transcripts.files.values()
    content = json.loads(lines[0])["message"]["content"]
    assert [block["type"] for block in content] == ["text", "image", "text"]
    assert base64.b64decode(content[1]["source"]["data"]) == PNG
    interrupted = MemoryJournal()
    await interrupted.append(*journal.events[:2])
    model = ScriptedModel(["red", "as I said"])
    async with Session(model=model, journal=interrupted, resume=session.id, **isolated) as resumed:
        await resumed.resume_unfinished()
        await resumed.run("Are you sure?")
    assert [get_user_blocks(request) for request in model.requests] == [BLOCKS, BLOCKS]


@pytest.mark.parametrize("model", WIRES)
async def test_the_image_is_sent_on_every_wire(model: str, isolated: IsolatedOptions) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        return "red"

    prefix, path = WIRES[model]
    async with ModelServer(answer) as server:
        isolated["environ"] = {
            f"{prefix}_API_KEY": "k",
            f"{prefix}_BASE_URL": server.url + path,
        }
        async with Session(model=model, journal="memory", **isolated) as session:
            report = await session.run(PROMPT)
    assert report.text == "red"
    body = json.dumps(server.requests[0].json)
    assert base64.b64encode(PNG).decode() in body
    assert "[image:" not in body


@pytest.mark.parametrize("takes_images", [False, True])
async def test_a_local_model_gets_placeholders_unless_a_setting_says_that_it_takes_images(
    takes_images: bool, isolated: IsolatedOptions
) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        return "red"

    async with ModelServer(answer) as server:
        isolated["environ"] = {"OLLAMA_BASE_URL": f"{server.url}/v1"}
        async with Session(
            model="ollama:llava",
            model_options=ModelOptions(takes_images=takes_images),
            journal="memory",
            **isolated,
        ) as session:
            report = await session.run(PROMPT)
    assert report.text == "red"
    body = json.dumps(server.requests[0].json)
    assert (base64.b64encode(PNG).decode() in body) is takes_images
    assert ("[image: image/png, 3x2, 1 KB]" in body) is not takes_images


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ([], "the prompt is empty"),
        ([TextBlock(" ")], "the prompt is empty"),
        (5, "not a text but a int"),
        (b"bytes", "not a text but a bytes"),
        (["text"], "block 1 of the prompt is a str"),
        ([TextBlock("x"), ImageBlock("image/png", PNG[:-5])], "block 2 .* not a complete PNG"),
        ([ImageBlock("image/bmp", b"BM")], "not a complete PNG"),
        ([ImageBlock("image/png", make_png(8_001, 1))], "too large"),
    ],
    ids=str,
)
async def test_a_prompt_that_cannot_be_sent_is_refused_before_any_model_call(
    prompt: list[TextBlock | ImageBlock], problem: str, isolated: IsolatedOptions
) -> None:
    model = ScriptedModel([])
    async with Session(model=model, journal="memory", **isolated) as session:
        with pytest.raises(UsageError, match=problem) as raised:
            await session.run(prompt)
        with pytest.raises(UsageError, match=r"\(prompt 2\)"):
            await session.map(["text", prompt])
    assert raised.value.remedy
    assert not model.requests
