"""Tests of the OpenAI and Google wires against a server, with split and cut streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from mudroom._adapters.models._http import HttpClient, SseParser, StreamCut, StreamReader
from mudroom._adapters.models._tool_names import ToolNames
from mudroom._adapters.models.google import GoogleModel, GoogleReader
from mudroom._adapters.models.openai._chat_stream import OpenAIReader
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
    user_message,
)
from mudroom._core.ports import Model, RequestConfig, RetryNotice, StreamChunk
from mudroom.errors import ModelError, ModelGarbled, ModelRefused, ModelUnavailable
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.wire_formats import WireAnswer, google_stream, openai_stream

from .wires import make_tool

WIRES = ["openai", "google"]
KEY = "sk-very-secret"
BLOCKS = (
    ThinkingBlock("Let me see…"),
    TextBlock("Grüße, 世界 😀"),
    ToolCallBlock("a", "read", {"path": "ä.py"}),
    ToolCallBlock("b", "self_emitvalue", {"n": [1, {"x": None}]}),
)
USAGE = Usage(100, 20, 64, 0, 5)
READERS: dict[str, Callable[[], StreamReader]] = {
    "openai": lambda: OpenAIReader("m", ToolNames(["self.emitvalue"])),
    "google": lambda: GoogleReader("m", ToolNames(["self.emitvalue"])),
}


CONFIG = RequestConfig(system="Be brief.", tools=(make_tool("read"), make_tool("self.emitvalue")))


def make_recorded(wire: str) -> bytes:
    reply = WireAnswer(BLOCKS, "m-1", "r1", USAGE, StopReason.CALLS)
    return b"".join((openai_stream if wire == "openai" else google_stream)(reply))


def read_through(wire: str, *chunks: bytes) -> AssistantMessage:
    sse = SseParser()
    reader = READERS[wire]()
    for event in (*(event for chunk in chunks for event in sse.feed(chunk)), *sse.flush()):
        reader.feed(event)
    return reader.finish()


def make_expected(wire: str) -> AssistantMessage:
    calls = (BLOCKS[2], ToolCallBlock("b", "self.emitvalue", {"n": [1, {"x": None}]}))
    thought = ThinkingBlock("Let me see…", "reasoning_content" if wire == "openai" else "")
    return AssistantMessage(
        (thought, BLOCKS[1], *calls), StopReason.CALLS, USAGE, "m-1", wire, "r1"
    )


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_split_at_any_byte_gives_the_same_answer(wire: str) -> None:
    data = make_recorded(wire)
    answer = make_expected(wire)
    for at in range(len(data) + 1):
        assert read_through(wire, data[:at], data[at:]) == answer


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_cut_at_any_byte_is_never_complete(wire: str) -> None:
    data = make_recorded(wire)
    answer = make_expected(wire)
    for at in range(len(data)):
        try:
            whole = read_through(wire, data[:at])
        except (StreamCut, msgspec.DecodeError):
            continue
        assert whole.content == answer.content


@asynccontextmanager
async def serve_model(
    wire: str, answer: Callable[[ServerRequest], ServerAnswer], clock: FakeClock | None = None
) -> AsyncGenerator[tuple[ModelServer, Model], None]:
    http = HttpClient(clock=clock or FakeClock(), read_timeout=1.0, max_tries=4)
    async with ModelServer(answer) as server:
        model: Model = (
            OpenAIModel("m", http=http, key=KEY, base_url=server.url + "/v1")
            if wire == "openai"
            else GoogleModel("m", http=http, key=KEY, base_url=server.url + "/v1beta")
        )
        try:
            yield server, model
        finally:
            await model.close()


async def request_items(model: Model) -> list[StreamChunk | RetryNotice | AssistantMessage]:
    conversation = model.start_conversation(CONFIG)
    conversation.append(user_message("Hi"))
    return [item async for item in conversation.request_answer()]


def script(*steps: ServerAnswer) -> Callable[[ServerRequest], ServerAnswer]:
    return lambda request: steps[min(request.number, len(steps)) - 1]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_conversation_over_several_turns(wire: str) -> None:
    async with serve_model(wire, script(BLOCKS, "Done.")) as (server, model):
        conversation = model.start_conversation(CONFIG)
        conversation.append(user_message("Hi"))
        *chunks, answer = [item async for item in conversation.request_answer()]
        assert isinstance(answer, AssistantMessage)
        assert answer.content == make_expected(wire).content
        assert (
            "".join(p.text for p in chunks if isinstance(p, StreamChunk) and p.kind == "text")
            == "Grüße, 世界 😀"
        )
        conversation.append(answer)
        conversation.append(
            UserMessage(
                (ToolResultBlock("a", "read", "one"), ToolResultBlock("b", "self.emitvalue", "two"))
            )
        )
        last = [item async for item in conversation.request_answer(tools=False)][-1]
        assert isinstance(last, AssistantMessage)
        assert last.text == "Done."
    first, second = server.requests
    assert first.tools == second.tools == ["read", "self_emitvalue"]
    assert second.body.startswith(first.body.removesuffix(b"]}"))
    assert first.is_streaming
    assert KEY not in first.path
    assert KEY in (first.headers.get("Authorization", "") + first.headers.get("x-goog-api-key", ""))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "fault",
    [
        Fault("half an answer", cut_after=150),
        Fault("half an answer", cut_after=150, end="reset"),
        Fault("half an answer", cut_after=150, end="eof"),
        Fault("half an answer", cut_after=150, end="stall"),
        Fault(status=429, headers={"Retry-After": "3"}),
        Fault(status=500),
        Fault(status=529),
        Fault(
            status=502, body=b"<html><title>Bad gateway</title></html>", content_type="text/html"
        ),
        Fault(
            body=b'data: {"error":{"code":503,"message":"overloaded"}}\n\n',
            content_type="text/event-stream",
        ),
    ],
    ids=["closed", "reset", "ended", "silent", "429", "500", "529", "html 502", "error in stream"],
)
async def test_temporary_failures_repeat_the_whole_request(wire: str, fault: Fault) -> None:
    async with serve_model(wire, script(fault, "All of it.")) as (server, model):
        items = await request_items(model)
    (retry,) = (item for item in items if isinstance(item, RetryNotice))
    assert isinstance(items[-1], AssistantMessage)
    assert items[-1].text == "All of it."
    assert server.requests[0].body == server.requests[1].body
    if fault.status == 429:
        assert (retry.status, retry.delay) == (429, 3.0)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("fault", "outcome", "requests"),
    [
        (
            Fault(status=401, body=b'{"error":{"message":"bad key sk-very-secret"}}'),
            ModelRefused,
            1,
        ),
        (Fault(status=400, body=b'{"error":{"message":"bad request"}}'), ModelRefused, 1),
        (Fault(status=503), ModelUnavailable, 4),
        (Fault("half", cut_after=60), ModelUnavailable, 4),
        (Fault(body=b"<html>hello</html>", content_type="text/html"), ModelGarbled, 1),
        (Fault(body=b'{"hello":1}', content_type="application/json"), ModelGarbled, 1),
        (Fault(body=b"data: nonsense\n\n", content_type="text/event-stream"), ModelGarbled, 3),
        (
            Fault(body=b'data: {"type":"message_start"}\n\n', content_type="text/event-stream"),
            ModelGarbled,
            1,
        ),
    ],
    ids=["401", "400", "503", "cut", "html", "json", "no json", "another dialect"],
)
async def test_each_permanent_failure_has_its_error_and_none_shows_the_key(
    wire: str, fault: Fault, outcome: type[ModelError], requests: int
) -> None:
    async with serve_model(wire, script(fault)) as (server, model):
        with pytest.raises(outcome) as error:
            await request_items(model)
    assert server.request_count == requests
    assert KEY not in str(error.value)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_of_single_bytes_is_read(wire: str) -> None:
    async with serve_model(wire, script(Fault(BLOCKS, chunk_size=1))) as (_, model):
        answer = (await request_items(model))[-1]
    assert isinstance(answer, AssistantMessage)
    assert answer.content == make_expected(wire).content
