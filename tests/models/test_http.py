"""Tests of the HTTP client: each failure of a provider ends in a retry or in one typed error."""

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import cycle, pairwise
from typing import cast

import pytest

from mudroom._adapters.models._errors import ProviderHints, choose_delay
from mudroom._adapters.models._http import HttpClient, join_chunks
from mudroom._adapters.models._rate_limit import AdaptiveRateLimiter
from mudroom._adapters.models._wire import WireConversation
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._core.messages import AssistantMessage, TextBlock, ToolCallBlock, user_message
from mudroom._core.ports import RequestConfig, RequestSlot, RetryNotice, StreamChunk
from mudroom.errors import ModelError, ModelGarbled, ModelRefused, ModelUnavailable
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from ..waiting import wait_until

KEY = "sk-ant-api03-very-secret"
HINTS = ProviderHints("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
CALL = (TextBlock("I shall read it."), ToolCallBlock("toolu_1", "read", {"path": "a.py"}))


class ServedConversation:
    """A real conversation with a scripted server."""

    def __init__(
        self, server: ModelServer, clock: FakeClock, conversation: WireConversation
    ) -> None:
        self.server = server
        self.clock = clock
        self.chat = conversation

    async def read_all(self) -> list[StreamChunk | RetryNotice | AssistantMessage]:
        return [part async for part in self.chat.request_answer()]

    async def answer(self) -> AssistantMessage:
        last = (await self.read_all())[-1]
        assert isinstance(last, AssistantMessage)
        return last

    async def list_retries(self) -> list[RetryNotice]:
        return [part for part in await self.read_all() if isinstance(part, RetryNotice)]


@asynccontextmanager
async def open_conversation(
    *answers: ServerAnswer,
    url: str = "",
    read_timeout: float = 60.0,
    jitter: Callable[[], float] = lambda: 1.0,
) -> AsyncGenerator[ServedConversation]:
    """Start a server that sends these replies in order and repeats the last one."""
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            ModelServer(lambda request: answers[min(request.number, len(answers)) - 1])
        )
        http = HttpClient(clock=clock, hints=HINTS, read_timeout=read_timeout, jitter=jitter)
        stack.push_async_callback(http.close)
        conversation = AnthropicModel(
            "claude-sonnet-4-5", http=http, key=KEY, base_url=url or server.url
        ).start_conversation(RequestConfig(system="Be brief."))
        conversation.append(user_message("Read a.py."))
        yield ServedConversation(server, clock, conversation)


def _make_error_body(message: str) -> bytes:
    return b'{"type":"error","error":{"type":"some_error","message":"%b"}}' % message.encode()


def test_chunks_that_arrive_together_are_joined_by_kind() -> None:
    kinds = ["thinking", "text", "text", "call", "call", "text"]
    chunks = [StreamChunk(kind, str(index)) for index, kind in enumerate(kinds)]
    joined = [(chunk.kind, chunk.text) for chunk in join_chunks(chunks)]
    assert joined == [("thinking", "0"), ("text", "12"), ("call", "34"), ("text", "5")]
    assert join_chunks(chunks[:1]) == chunks[:1]
    assert join_chunks([]) == []


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_temporary_failures_are_retried(status: int) -> None:
    async with open_conversation(
        Fault(status=status, body=_make_error_body("wait")), "Done."
    ) as served:
        parts = await served.read_all()
        assert isinstance(parts[0], RetryNotice)
        assert (parts[0].attempt, parts[0].status) == (1, status)
        assert "wait" in parts[0].error
        assert isinstance(parts[-1], AssistantMessage)
        assert len(served.server.requests) == 2
        assert served.server.requests[0].body == served.server.requests[1].body


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
async def test_permanent_failures_are_not_retried_and_do_not_show_the_key(
    status: int,
) -> None:
    async with open_conversation(
        Fault(status=status, body=_make_error_body(f"no, not with {KEY}"))
    ) as served:
        with pytest.raises(ModelRefused) as caught:
            await served.read_all()
        message = str(caught.value)
        assert KEY not in message
        assert "no, not with [redacted]" in message
        assert f"HTTP {status}" in message
        assert f"{served.server.url}/v1/messages" in message
        assert len(served.server.requests) == 1


@pytest.mark.parametrize(("status", "is_key_error"), [(401, True), (402, False), (403, True)])
async def test_the_error_for_a_refused_key_names_its_variable(
    status: int, is_key_error: bool
) -> None:
    async with open_conversation(Fault(status=status, body=_make_error_body("refused"))) as served:
        with pytest.raises(ModelRefused) as caught:
            await served.read_all()
    assert ("Check the key in ANTHROPIC_API_KEY" in str(caught.value)) is is_key_error


async def test_the_error_for_an_unknown_model_says_what_to_check() -> None:
    async with open_conversation(
        Fault(status=404, body=_make_error_body("model: claude-9"))
    ) as served:
        with pytest.raises(
            ModelRefused, match=r"Check the model's name\. Check the base URL in ANTHROPIC_BASE_URL"
        ):
            await served.read_all()


@pytest.mark.parametrize("end", ["close", "reset", "eof"])
@pytest.mark.parametrize("cut", [0, 40, 500, 900])
async def test_a_cut_stream_is_requested_again(end: str, cut: int) -> None:
    async with open_conversation(Fault(CALL, cut_after=cut, end=end), CALL) as served:
        parts = await served.read_all()
        assert [part.status for part in parts if isinstance(part, RetryNotice)] == [0]
        assert isinstance(parts[-1], AssistantMessage)
        assert parts[-1].content == CALL


async def test_a_silent_stream_counts_as_a_lost_connection() -> None:
    async with open_conversation(
        Fault(CALL, cut_after=300, end="stall"), "Done.", read_timeout=0.5
    ) as served:
        retries = await served.list_retries()
        assert [retry.error for retry in retries] == ["anthropic sent no data for 0.5 s"]


async def test_a_server_that_stays_silent_is_asked_three_times() -> None:
    stalled = Fault(CALL, cut_after=300, end="stall")
    async with open_conversation(*[stalled] * 9, read_timeout=0.3) as served:
        with pytest.raises(ModelUnavailable, match=r"sent no data for 0\.3 s, tried 3 times"):
            await served.read_all()
        assert served.server.request_count == 3


async def test_an_error_inside_the_stream_is_retried_like_its_status() -> None:
    overloaded = (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
        b'"message":"Overloaded"}}\n\n'
    )
    async with open_conversation(
        Fault(body=overloaded, content_type="text/event-stream"), "Done."
    ) as served:
        retries = await served.list_retries()
        assert [(retry.status, retry.error) for retry in retries] == [
            (529, "anthropic answered 529 overloaded: Overloaded")
        ]


@pytest.mark.parametrize(
    ("body", "kind", "requests"),
    [
        (b"<html><head><title>Log in</title></head></html>", "text/html", 1),
        (b'{"ok": true}', "application/json", 1),
        (b'{"ok": tr', "application/json", 3),
        (b"data: <html>\n\n", "text/event-stream", 3),
        (b'data: {"choices": []}\n\n', "text/event-stream", 1),
        (b'data: {"type": "message_start", "message": 7}\n\n', "text/event-stream", 3),
    ],
)
async def test_another_protocol_is_garbled(body: bytes, kind: str, requests: int) -> None:
    async with open_conversation(Fault(body=body, content_type=kind)) as served:
        with pytest.raises(ModelGarbled, match="Check the base URL in ANTHROPIC_BASE_URL"):
            await served.read_all()
        assert len(served.server.requests) == requests


async def test_two_messages_in_one_stream_are_garbled() -> None:
    twice = b'data: {"type":"message_start","message":{"id":"a"}}\n\n' * 2
    async with open_conversation(Fault(body=twice, content_type="text/event-stream")) as served:
        with pytest.raises(ModelGarbled, match="two messages"):
            await served.read_all()


async def test_a_502_with_an_html_body_is_retried_as_502() -> None:
    async with open_conversation(
        Fault(status=502, body=b"<html><title>Bad gateway</title>", content_type="text/html"),
        "Done.",
    ) as served:
        retries = await served.list_retries()
        assert retries[0].status == 502
        assert "an HTML page titled 'Bad gateway'" in retries[0].error


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "2.5"}, 2.5),
        ({"Retry-After-Ms": "1500", "Retry-After": "9"}, 1.5),
        (
            {
                "Retry-After": format_datetime(
                    datetime.fromtimestamp(1_700_000_012, UTC), usegmt=True
                )
            },
            12.0,
        ),
        ({"Retry-After": "soon"}, 0.5),
    ],
)
async def test_the_retry_after_header_is_obeyed(headers: dict[str, str], seconds: float) -> None:
    async with open_conversation(Fault(status=429, headers=headers), "Done.") as served:
        assert [retry.delay for retry in await served.list_retries()] == [
            pytest.approx(seconds, abs=0.01)
        ]
        assert served.clock.monotonic() >= seconds - 0.01


class RecordedRoom(AdaptiveRateLimiter):
    """A rate limiter that remembers the room that responses report."""

    room: int | None = None

    def record_accepted(self, slot: RequestSlot, room: int | None = None) -> None:
        super().record_accepted(slot, room)
        self.room = room


async def test_the_rate_limiter_learns_the_room_of_the_provider() -> None:
    headers = {"Anthropic-RateLimit-Requests-Remaining": "3999"}
    limiter = RecordedRoom(FakeClock())
    async with ModelServer(lambda _: Fault("Done.", headers=headers)) as server:
        http = HttpClient(clock=FakeClock(), hints=HINTS, limiter=limiter)
        model = AnthropicModel("claude-x", http=http, key=KEY, base_url=server.url)
        conversation = model.start_conversation(RequestConfig(system=""))
        conversation.append(user_message("Go."))
        assert [part async for part in conversation.request_answer()]
        await http.close()
    assert limiter.room == 3999


async def test_a_retry_after_longer_than_max_wait_is_reported_to_the_user() -> None:
    async with open_conversation(Fault(status=429, headers={"Retry-After": "3600"})) as served:
        for _ in range(2):
            with pytest.raises(ModelUnavailable, match="asks to wait 3600 s"):
                await served.read_all()
        assert len(served.server.requests) == 1, "the second did not wait, and did not ask either"


async def test_delays_double_up_to_a_cap_and_end_after_eight_tries() -> None:
    delays: list[float] = []
    async with open_conversation(Fault(status=500, body=_make_error_body("down"))) as served:
        with pytest.raises(
            ModelUnavailable, match=r"answered 500 internal error: down, tried 8 times"
        ) as caught:
            async for part in served.chat.request_answer():
                assert isinstance(part, RetryNotice)
                delays.append(part.delay)
        assert caught.value.remedy
        assert delays == [0.5, 1, 2, 4, 8, 16, 30]
        assert len(served.server.requests) == 8


async def test_a_broken_answer_after_overloads_is_requested_again() -> None:
    broken = Fault(body=b"data: <html>\n\n", content_type="text/event-stream")
    answers = (Fault(status=529), Fault(status=529), broken, Fault(status=529), broken, "Done.")
    async with open_conversation(*answers) as served:
        assert (await served.answer()).text == "Done."


async def test_each_delay_is_longer_than_the_one_before() -> None:
    jitters = cycle([1.0, 0.0])
    async with open_conversation(Fault(status=500), jitter=lambda: next(jitters)) as served:
        with pytest.raises(ModelUnavailable):
            await served.read_all()
        delays = served.clock.sleeps
    assert len(delays) == 7
    assert all(later > 1.3 * earlier for earlier, later in pairwise(delays)), delays


def test_delays_after_the_same_attempt_are_spread() -> None:
    delays = [choose_delay(1, number / 100) for number in range(100)]
    assert len(set(delays)) == 100
    assert (min(delays), max(delays)) == (pytest.approx(1 / 3), pytest.approx(0.5, rel=0.01))


async def test_an_unreachable_server_is_reported_after_three_tries() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with open_conversation(url=f"http://127.0.0.1:{port}") as served:
        with pytest.raises(
            ModelUnavailable, match=rf"cannot reach anthropic.*127.0.0.1:{port}.*ANTHROPIC_BASE_URL"
        ) as caught:
            await served.read_all()
        assert len(served.clock.sleeps) == 2
        assert "tried 3 times" in str(caught.value)


@pytest.mark.parametrize("url", ["nonsense", "http://", "ftp://127.0.0.1"])
async def test_an_invalid_url_is_reported_at_once(url: str) -> None:
    async with open_conversation(url=url) as served:
        with pytest.raises(ModelError, match="is not a URL"):
            await served.read_all()


async def test_closing_the_answer_ends_the_request() -> None:
    async with open_conversation(Fault(CALL, cut_after=700, end="stall")) as served:
        parts = cast("AsyncGenerator[object]", served.chat.request_answer())
        async with aclosing(parts):
            await anext(parts)
            assert served.server.in_flight == 1
        await wait_until(lambda: not served.server.in_flight)


async def test_connections_reopen_after_close() -> None:
    async with open_conversation("Done.") as served:
        await served.answer()
        await served.chat._model.close()
        assert (await served.answer()).text == "Done."


async def test_a_request_body_is_freed_while_its_answer_is_awaited() -> None:
    freed: list[bool] = []
    was_freed_before_answer: list[bool] = []

    class Body(bytes):
        def __del__(self) -> None:
            freed.append(True)

    def answer(_: ServerRequest) -> ServerAnswer:
        was_freed_before_answer.append(bool(freed))
        return "Done."

    async with ModelServer(answer) as server:
        http = HttpClient(clock=FakeClock())
        model = AnthropicModel("claude-x", http=http, base_url=server.url)
        conversation = model.start_conversation(RequestConfig(system=""))
        conversation.append(user_message("x" * 2_000_000))
        make_body = conversation.build_body
        conversation.build_body = lambda **options: Body(make_body(**options))  # pyright: ignore
        parts = [part async for part in conversation.request_answer()]
        await http.close()
    assert isinstance(parts[-1], AssistantMessage)
    assert was_freed_before_answer == [True]
