"""Web search by the provider's own tool: offered, recorded, shown and sent back."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.transcripts import render_transcript

from mudroom import Agent, AnyEvent, Mode, Permissions, Reason, Report, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models import model_facts
from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models._wire import WireModel
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._adapters.models.google import GoogleModel
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.openai.responses import ResponsesModel
from mudroom._cli.actions.export import render_session_markdown
from mudroom._cli.interactive.scrollback_writer import ScrollbackWriter
from mudroom._cli.output.plain_progress import PlainProgress
from mudroom._cli.output.scrollback import Scrollback
from mudroom._core.events import Delta, ModelCallRetried, TurnFinished
from mudroom._core.messages import (
    AssistantMessage,
    ProviderBlock,
    TextBlock,
    user_message,
)
from mudroom._core.ports import RequestConfig
from mudroom._core.tools import Tool
from mudroom._projections.anthropic_shapes import to_anthropic_message
from mudroom._projections.run_tree import RunTree
from mudroom._projections.stream_json import StreamJson
from mudroom.testing import FakeClock
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from .wires import make_environ

QUESTION = "How deep is mud?"
MODELS = {
    "anthropic": "anthropic:claude-sonnet-5-5",
    "openai-responses": "openai-responses:gpt-5.5",
    "google": "google:gemini-3-pro-preview",
}
USE: dict[str, Any] = {
    "type": "server_tool_use",
    "id": "srvtoolu_01",
    "name": "web_search",
    "input": {"query": "depth of mud"},
}
RESULT: dict[str, Any] = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_01",
    "content": [
        {
            "type": "web_search_result",
            "title": "On Mud",
            "url": "https://mud.example/",
            "encrypted_content": "ErkeCioICBgC",
            "page_age": None,
        }
    ],
}
CITATION = {
    "type": "web_search_result_location",
    "cited_text": "It is deep.",
    "url": "https://mud.example/",
    "title": "On Mud",
    "encrypted_index": "Eo8BCioI",
}
READ: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
SEARCH_ITEM = {
    "id": "ws_0dcf",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "depth of mud"},
}


def encode_events(events: list[dict[str, Any]]) -> Fault:
    lines = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events]
    return Fault(body="".join(lines).encode(), content_type="text/event-stream")


def make_anthropic_answer(*blocks: tuple[dict[str, Any], list[dict[str, Any]]], stop: str) -> Fault:
    """Return a stream; each block has its start and its deltas."""
    usage = {"input_tokens": 2037, "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "model": "claude", "usage": usage}}
    ]
    for index, (start, deltas) in enumerate(blocks):
        place = {"index": index}
        events.append({"type": "content_block_start", **place, "content_block": start})
        events += [{"type": "content_block_delta", **place, "delta": each} for each in deltas]
        events.append({"type": "content_block_stop", **place})
    searches = {"web_search_requests": 1, "web_fetch_requests": 0}
    usage = {"input_tokens": 15_665, "output_tokens": 95, "server_tool_use": searches}
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage})
    return encode_events([*events, {"type": "message_stop"}])


def say(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block of text, as `make_anthropic_answer` takes it."""
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]


READ_TOOL = Tool(
    name="read",
    description="Reads a file.",
    parameters={"type": "object"},
    parse=dict,
    run=lambda *_: None,  # type: ignore[arg-type]
)
SEARCH_DELTAS = [
    {"type": "input_json_delta", "partial_json": part}
    for part in ("", '{"query": "de', 'pth of mud"}')
]
ANTHROPIC_SEARCH = make_anthropic_answer(
    (USE | {"input": {}}, SEARCH_DELTAS),
    (RESULT, []),
    (
        {"type": "text", "text": "", "citations": []},
        [
            {"type": "citations_delta", "citation": CITATION},
            {"type": "text_delta", "text": "It is deep."},
        ],
    ),
    (READ, [{"type": "input_json_delta", "partial_json": '{"file_path": "a"}'}]),
    stop="tool_use",
)


def make_responses_answer(*items: dict[str, Any]) -> Fault:
    events = [
        {"type": f"response.output_item.{step}", "output_index": index, "item": item}
        for index, item in enumerate(items)
        for step in ("added", "done")
    ]
    response = {"id": "resp_1", "model": "gpt", "usage": {"input_tokens": 5093, "output_tokens": 9}}
    return encode_events([*events, {"type": "response.completed", "response": response}])


RESPONSES_SEARCH = make_responses_answer(
    SEARCH_ITEM,
    {"type": "message", "content": [{"type": "output_text", "text": "It is deep."}]},
    {
        "type": "function_call",
        "call_id": "call_1",
        "name": "read",
        "arguments": '{"file_path":"a"}',
    },
)
GOOGLE_PARTS: list[dict[str, Any]] = [
    {
        "toolCall": {
            "toolType": "GOOGLE_SEARCH_WEB",
            "id": "tju3qkc9",
            "args": {"queries": ["depth of mud"]},
        },
        "thoughtSignature": "EpYSCpMSCAIS",
    },
    {
        "toolResponse": {
            "toolType": "GOOGLE_SEARCH_WEB",
            "id": "tju3qkc9",
            "response": {"search_suggestions": "<div></div>"},
        },
        "thoughtSignature": "EtoGCtcGCAIS",
    },
    {"text": "It is deep."},
    {
        "functionCall": {"name": "read", "args": {"file_path": "a"}, "id": "c1"},
        "thoughtSignature": "EsUBCsIBAQw5",
    },
]
GROUNDING: dict[str, Any] = {
    "webSearchQueries": ["depth of mud", ""],
    "groundingChunks": [{"web": {"uri": "https://mud.example/", "title": "On Mud"}}],
    "searchEntryPoint": {"renderedContent": "<div></div>"},
}


def make_google_answer(parts: list[dict[str, Any]], grounding: dict[str, Any]) -> Fault:
    """Return a stream with a chunk for each part; the last one has the sources."""
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts
    ]
    chunks[-1]["candidates"][0] |= {"finishReason": "STOP", "groundingMetadata": grounding}
    chunks[-1]["usageMetadata"] = {"promptTokenCount": 50, "candidatesTokenCount": 9}
    body = "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks)
    return Fault(body=body.encode(), content_type="text/event-stream")


SEARCHES = {
    "anthropic": ANTHROPIC_SEARCH,
    "openai-responses": RESPONSES_SEARCH,
    "google": make_google_answer(GOOGLE_PARTS, GROUNDING),
}


def search_first(request: ServerRequest) -> ServerAnswer:
    """Answer with a search and a call of `read`, then with a text."""
    return SEARCHES[request.dialect] if request.number == 1 else "Done."


def find_search_tool(request: ServerRequest) -> list[dict[str, Any]]:
    return [
        tool
        for tool in request.json["tools"]
        if "web_search" in tool.get("type", "") or "googleSearch" in tool
    ]


class Served:
    """A server whose models search the web, and sessions that use it."""

    def __init__(self, server: ModelServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.folder = folder
        self.events: list[AnyEvent] = []
        (folder / "a").write_text("written in a")
        facts = model_facts.find_facts("claude-sonnet-5-5")
        facts = replace(facts, provider_tools=frozenset({"web_search"}), encrypts_reasoning=True)
        host = server.url.removeprefix("http://")
        bases = {"claude-sonnet-5-5": host, "gpt-5.5": f"{host}/v1"}
        bases["gemini-3-pro-preview"] = f"{host}/v1beta"
        for name, base in bases.items():
            monkeypatch.setitem(model_facts._learnt, (name, base), facts)

    def open(self, wire: str, **options: Any) -> Session:
        home = str(self.folder / "home")
        defaults: dict[str, Any] = {"allow_net": True, "sandbox": "off"}
        return Session(
            model=MODELS.get(wire, wire),
            cwd=str(self.folder),
            home=home,
            environ=make_environ(self.server.url),
            **defaults | options,
        )

    async def run(self, wire: str, *watchers: Callable[[AnyEvent], None], **options: Any) -> Report:
        """Ask in a session of its own, and keep its events."""
        async with self.open(wire, **options) as session:
            for watch in (self.events.append, *watchers):
                session.watch(watch)
            return await session.run(QUESTION)


Serve = Callable[[Callable[[ServerRequest], ServerAnswer]], AbstractAsyncContextManager[Served]]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    @asynccontextmanager
    async def serve(answer: Callable[[ServerRequest], ServerAnswer]) -> AsyncGenerator[Served]:
        async with ModelServer(answer) as server:
            yield Served(server, tmp_path, monkeypatch)

    return serve


# --- the conversation


@pytest.mark.parametrize("wire", MODELS)
async def test_a_search_goes_back_unchanged_after_a_tool_call(wire: str, serve: Serve) -> None:
    async with serve(search_first) as served:
        report = await served.run(wire)
        requests = served.server.requests
    assert (report.reason, report.text) == (Reason.GOAL, "Done."), report.error
    assert report.usage.searches == 1
    assert len(requests) == 2
    for request in requests:
        (tool,) = find_search_tool(request)
        assert tool.get("type") in ("web_search_20250305", "web_search", None)
    if wire == "anthropic":
        text = {"type": "text", "text": "It is deep.", "citations": [CITATION]}
        call = READ | {"input": {"file_path": "a"}}
        assert requests[1].messages[1]["content"] == [USE, RESULT, text, call]
    elif wire == "google":
        assert requests[1].messages[1]["parts"] == GOOGLE_PARTS
        assert [request.json["toolConfig"] for request in requests] == [
            {"includeServerSideToolInvocations": True}
        ] * 2
    else:
        item = {name: value for name, value in SEARCH_ITEM.items() if name != "id"}
        assert item in requests[1].messages


@pytest.mark.parametrize("wire", MODELS)
async def test_a_resumed_session_sends_searches_only_to_their_own_wire(
    wire: str, serve: Serve
) -> None:
    other = "google" if wire == "anthropic" else "anthropic"
    resume = ""
    async with serve(search_first) as served:
        for each in (wire, other, wire):
            async with served.open(each, resume=resume) as session:
                report = await session.run(QUESTION)
            assert report.reason is Reason.GOAL, report.error
            resume = session.id
        _, _, foreign, own = served.server.requests
    marks = ("srvtoolu_01", "encrypted_index", "web_search_call", "depth of mud", "toolCall")
    sent = json.dumps(foreign.messages)
    assert not [mark for mark in marks if mark in sent]
    assert "It is deep." in sent
    assert "depth of mud" in json.dumps(own.messages)


def make_answer(wire: str, *blocks: ProviderBlock | TextBlock) -> AssistantMessage:
    return AssistantMessage(blocks, wire=wire)


def build_body(model: WireModel, *messages: Any, tools: tuple[str, ...] = ()) -> dict[str, Any]:
    conversation = model.start_conversation(RequestConfig(system="s", provider_tools=tools))
    for message in messages:
        conversation.append(message)
    return json.loads(conversation.build_body())


def make_model(
    kind: type[WireModel] = AnthropicModel, model: str = "claude-sonnet-5-5", **options: Any
) -> WireModel:
    return kind(model, http=HttpClient(clock=FakeClock()), **options)


def test_a_search_without_a_result_is_not_sent() -> None:
    use = ProviderBlock("server_tool_use", json.dumps(USE), "searched the web: depth of mud")
    answer = make_answer("anthropic", use, TextBlock("I search."))
    messages = (user_message("go"), answer, user_message("continue"))
    body = build_body(make_model(), *messages, tools=("web_search",))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "I search."}]


def test_a_request_without_the_tool_has_no_searches() -> None:
    use = ProviderBlock("server_tool_use", json.dumps(USE))
    result = ProviderBlock("web_search_tool_result", json.dumps(RESULT))
    text = TextBlock("Deep.", json.dumps([CITATION]))
    answer = make_answer("anthropic", use, result, text)
    body = build_body(make_model(), user_message("go"), answer, user_message("continue"))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Deep."}]


async def test_a_paused_search_continues(serve: Serve) -> None:
    paused = make_anthropic_answer(
        say("I search."),
        (USE | {"input": {}}, SEARCH_DELTAS),
        stop="pause_turn",
    )
    async with serve(lambda request: paused if request.number == 1 else "Deep.") as served:
        report = await served.run("anthropic")
        second = served.server.requests[1]
    assert (report.reason, report.text) == (Reason.GOAL, "I search.\nDeep.")
    *_, paused_turn = second.messages
    assert paused_turn["role"] == "assistant"
    assert [block["type"] for block in paused_turn["content"]] == ["text", "server_tool_use"]


async def test_a_failed_search_is_shown_with_its_reason(serve: Serve) -> None:
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    failed = make_anthropic_answer(
        (USE | {"input": {}}, SEARCH_DELTAS),
        (RESULT | {"content": error}, []),
        say("No answer."),
        stop="end_turn",
    )
    async with serve(lambda _: failed) as served:
        await served.run("anthropic")
    (answer,) = [event.message for event in served.events if isinstance(event, TurnFinished)]
    texts = [block.text for block in answer.content if isinstance(block, ProviderBlock)]
    reason = "the search failed: max_uses_exceeded"
    assert texts == ["searched the web: depth of mud", reason]
    ends = [e.text for e in served.events if isinstance(e, Delta) and e.kind == "search_end"]
    assert ends == [reason]


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ("openai-responses", "Web search is not enabled for this organization."),
        ("google", "Tool use with function calling is unsupported by the model."),
        ("google", "Built-in tools ({google_search}) and Function Calling cannot be combined."),
        ("google", "Search Grounding is not supported."),
    ],
)
async def test_a_refused_search_tool_is_left_out_and_the_retry_says_so(
    wire: str, message: str, serve: Serve
) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        if not find_search_tool(request):
            return "Done."
        error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        return Fault(status=400, body=json.dumps(error).encode())

    async with serve(answer) as served:
        async with served.open(wire) as session:
            session.watch(served.events.append)
            reports = [await session.run(QUESTION) for _ in range(2)]
        searches = [len(find_search_tool(request)) for request in served.server.requests]
    assert [(report.reason, report.text) for report in reports] == [(Reason.GOAL, "Done.")] * 2
    assert searches == [1, 0, 0]
    (retry,) = [event for event in served.events if isinstance(event, ModelCallRetried)]
    assert retry.error.startswith("sent again: the model does not search the web. ")


async def test_a_last_request_without_calls_keeps_one_tool_setting_for_gemini() -> None:
    model = make_model(GoogleModel, "gemini-3-pro-preview")
    config = RequestConfig(system="s", tools=(READ_TOOL,), provider_tools=("web_search",))
    body = json.loads(model.start_conversation(config).build_body(tools=False))
    assert body["toolConfig"] == {
        "includeServerSideToolInvocations": True,
        "functionCallingConfig": {"mode": "NONE"},
    }
    assert [list(tool) for tool in body["tools"]] == [["functionDeclarations"], ["googleSearch"]]


def test_an_interrupted_search_of_gemini_is_not_sent() -> None:
    call = ProviderBlock("toolCall", json.dumps(GOOGLE_PARTS[0]), "searched the web: mud")
    answer = make_answer("google", call, TextBlock("I search."))
    model = make_model(GoogleModel, "gemini-3-pro-preview")
    body = build_body(model, user_message("go"), answer, tools=("web_search",))
    assert body["contents"][1]["parts"] == [{"text": "I search."}]


# --- where it is offered


@pytest.mark.parametrize(
    ("options", "is_offered"),
    [
        ({}, True),
        ({"allow_net": False}, False),
        ({"allow_net": False, "permissions": Permissions.of(allow=["WebSearch"])}, True),
        ({"allow_net": False, "permissions": Permissions.of(allow=["WebSearch(mud)"])}, False),
        ({"permissions": Permissions.of(deny=["WebSearch"])}, False),
        ({"permissions": Permissions.of(deny=["WebSearch(query:mud*)"])}, False),
        ({"permissions": Permissions.of(ask=["WebSearch"])}, False),
        ({"permissions": Permissions(can_ask=True)}, False),
        ({"permissions": replace(Permissions.of(allow=["WebSearch"]), can_ask=True)}, True),
        ({"agent": Agent(name="a", tools=("read", "web_search"))}, True),
        ({"agent": Agent(name="a", tools=("read",))}, False),
        ({"agent": Agent(name="a", tools=("*", "!web_search(mud)"))}, False),
        ({"agent": Agent(name="a", mode=Mode.PLAN)}, False),
    ],
    ids=str,
)
async def test_the_tool_is_offered_where_the_rules_allow_each_search(
    options: dict[str, Any], is_offered: bool, serve: Serve
) -> None:
    async with serve(lambda _: "Done.") as served:
        await served.run("openai-responses", **options)
        assert bool(find_search_tool(served.server.requests[0])) is is_offered


@pytest.mark.parametrize(
    ("model", "options", "notice"),
    [
        ("anthropic", {"permissions": Permissions.of(allow=["WebSearch"])}, ""),
        ("anthropic", {}, ""),
        (
            "anthropic:claude-3-opus",
            {"permissions": Permissions.of(allow=["WebSearch"])},
            "web_search is not available: mudroom knows no web search of anthropic:claude-3-opus",
        ),
        (
            "anthropic",
            {"allow_net": False, "agent": Agent(name="a", tools=("web_search",))},
            "web_search is not available: use --allow-net, or the allow rule WebSearch",
        ),
        (
            "anthropic",
            {
                "agent": Agent(name="a", tools=("web_search",)),
                "permissions": Permissions(can_ask=True),
            },
            "web_search is not available: the provider does not ask before a search; the allow "
            "rule WebSearch permits it",
        ),
    ],
)
async def test_a_notice_says_why_the_tool_is_missing(
    model: str, options: dict[str, Any], notice: str, serve: Serve
) -> None:
    async with serve(lambda _: "Done.") as served:
        async with served.open(model, **options) as session:
            notices = [each for each in map(str, session.notices) if "web_search" in each]
    assert notices == ([notice] if notice else [])


@pytest.mark.parametrize(
    ("model", "is_offered"),
    [
        (make_model(), True),
        (make_model(model="claude-3-opus-20240229"), False),
        (make_model(base_url="http://127.0.0.1:8080"), False),
        (make_model(ResponsesModel, "gpt-6.1-sol"), True),
        (make_model(ResponsesModel, "gpt-5.5", base_url="https://gateway.example/v1"), False),
        (make_model(OpenAIModel, "gpt-5.5"), False),
        (make_model(GoogleModel, "gemini-3-pro-preview"), True),
        (make_model(GoogleModel, "gemini-flash-latest"), True),
        (make_model(GoogleModel, "gemini-2.5-pro"), False),
        (make_model(GoogleModel, "gemini-3-pro-image-preview"), False),
        (make_model(GoogleModel, "gemini-3-pro-preview", base_url="http://127.0.0.1/v1"), False),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_model_and_its_host_decide(model: WireModel, is_offered: bool) -> None:
    assert model.provider_tools == (("web_search",) if is_offered else ())
    assert build_body(model, tools=("web_search",)).get("tools", []) == (
        [dict(model.PROVIDER_TOOLS["web_search"]) | get_cache_mark(model)] if is_offered else []
    )


def get_cache_mark(model: WireModel) -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral"}} if isinstance(model, AnthropicModel) else {}


# --- what users see


def test_stream_json_shows_searches_as_server_tool_use() -> None:
    item = ProviderBlock("web_search_call", json.dumps(SEARCH_ITEM), "searched the web: mud")
    result = ProviderBlock("web_search_tool_result", json.dumps(RESULT), "found:")
    message = to_anthropic_message(make_answer("", item, result), "gpt", "end_turn")
    use = {"type": "server_tool_use", "id": "ws_0dcf", "name": "web_search"}
    assert message["content"] == [use | {"input": SEARCH_ITEM["action"]}, RESULT]


@pytest.mark.parametrize("wire", ["anthropic", "google"])
async def test_transcript_and_export_show_query_and_sources(wire: str, serve: Serve) -> None:
    async with serve(search_first) as served:
        journal = MemoryJournal()
        await served.run(wire, journal=journal)
        stored = [event async for event in journal.read()]
    for shown in (render_transcript(stored, "1"), "".join(render_session_markdown(stored))):
        assert "searched the web: depth of mud" in shown
        assert shown.index("On Mud https://mud.example/") < shown.index("It is deep.")


@pytest.mark.parametrize("wire", MODELS)
async def test_a_line_says_when_a_search_starts_and_ends(wire: str, serve: Serve) -> None:
    progress = io.StringIO()
    screen = PlainProgress(progress, RunTree(), verbose=True)
    json_lines = StreamJson(session="s", cwd="/", model="m", tools=(), agents=())
    async with serve(search_first) as served:
        await served.run(wire, screen.on_event)
    searches = [
        (event.kind, event.text)
        for event in served.events
        if isinstance(event, Delta) and event.kind.startswith("search")
    ]
    query = "" if wire == "openai-responses" else ": depth of mud"
    start = f"searching the web{query}"
    assert searches == [
        ("search_start", start),
        ("search_end", "searched the web: depth of mud"),
    ]
    lines = progress.getvalue().splitlines()
    assert f"main: {start}" in lines
    assert "main: searched the web: depth of mud" in lines
    system = [
        (line["status"], line["text"])
        for event in served.events
        for line in json_lines.make_event_lines(event)
        if line.get("subtype") == "web_search"
    ]
    assert system == [("started", start), ("finished", "searched the web: depth of mud")]


CITED_TEXTS = ("I search.", "Mud is ", "deep", ", they say.")
CITED_ANSWER = make_anthropic_answer(
    say(CITED_TEXTS[0]),
    (USE | {"input": {}}, SEARCH_DELTAS),
    (RESULT, []),
    *map(say, CITED_TEXTS[1:]),
    stop="end_turn",
)


async def test_the_parts_of_a_cited_sentence_are_one_text(serve: Serve) -> None:
    """The screen shows each text once, and the search between the texts around it."""
    shown: list[str] = []
    scrollback = Scrollback(write=shown.append, columns=lambda: 60, color=False)
    tree = RunTree()
    writer = ScrollbackWriter(scrollback, tree)
    async with serve(lambda _: CITED_ANSWER) as served:
        journal = MemoryJournal()
        report = await served.run("anthropic", tree.apply, writer.apply, journal=journal)
        stored = [event async for event in journal.read()]
    assert report.text == "I search.\nMud is deep, they say."
    lines = [line for line in "".join(shown).splitlines() if line.strip()]
    assert lines == ["I search.", "● searched the web: depth of mud", "Mud is deep, they say."]
    assert "Mud is deep, they say." in render_transcript(stored, "1")
    body = build_body(
        make_model(OpenAIModel, "m", base_url="http://127.0.0.1/v1"),
        user_message("go"),
        *(event.message for event in stored if isinstance(event, TurnFinished)),
    )
    assert body["messages"][-1]["content"] == "I search.\n\nMud is deep, they say."
