"""The record has the system prompt and the tools of every request, each text once."""

from __future__ import annotations

import os
from typing import Any

from tests.session.conftest import IsolatedOptions
from tests.session.test_cancel import EndlessModel, leave_unfinished_run

from mudroom import Integrations, Session, Tool, ToolCallBlock, ToolResult
from mudroom._adapters.journals.sessions import read_events
from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._adapters.output_filters import Redactor
from mudroom._cli.actions.export import redact_events
from mudroom._engine.session_context import RequestHeads
from mudroom.events import RunResumed, RunStarted, StoredEvent, decode_event, encode_event
from mudroom.ports import RequestConfig
from mudroom.testing import MemoryJournal, ScriptedModel
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

SECRET = "sk-planted-key-of-some-length-0123456789"


def delegate(request: ServerRequest) -> ServerAnswer:
    """Start two children of two agents, which answer at once."""
    if "DELEGATE" not in str(request.messages[-1]):
        return "Done."
    return [
        ToolCallBlock(f"c{number}", "task", {"agent": agent, "prompt": "Look.", "description": "d"})
        for number, agent in enumerate(("explore", "general"))
    ]


def list_heads(events: list[StoredEvent]) -> dict[str, tuple[str, list[dict[str, Any]]]]:
    """Return system prompt and tools of each run, as the record describes them."""
    parts: dict[str, Any] = {}
    described: dict[str, Any] = {}
    heads: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    for event in events:
        if not isinstance(event, RunStarted | RunResumed):
            continue
        assert event.head is not None
        for name, part in event.head.parts.items():
            assert name not in parts, "each part is recorded once"
            parts[name] = part
        if event.head.system:
            described[event.head.id] = event.head
        head = described[event.head.id]
        tools = [
            {
                "name": parts[tool].name,
                "description": parts[tool].description,
                "input_schema": parts[tool].parameters,
            }
            for tool in head.tools
        ]
        heads[event.run] = (parts[head.system], tools)
    return heads


def read_request(request: ServerRequest) -> tuple[str, list[dict[str, Any]]]:
    """Return system prompt and tools of a request, without the marks of the provider's cache."""
    system = "".join(block["text"] for block in request.json["system"])
    fields = ("name", "description", "input_schema")
    return system, [{field: tool[field] for field in fields} for tool in request.json["tools"]]


async def test_the_record_has_what_every_request_had(isolated: IsolatedOptions) -> None:
    with open(os.path.join(isolated["cwd"], "AGENTS.md"), "w", encoding="utf-8") as file:
        file.write("Write short answers.\n")
    async with ModelServer(delegate) as server:
        isolated["environ"] = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        options: dict[str, Any] = {
            **isolated,
            "model": "anthropic:claude-sonnet-4-5",
            "integrations": Integrations(agent_files=True),
        }
        async with Session(**options) as session:
            await session.run("DELEGATE this.")
            await session.run("DELEGATE this, too.")
        async with Session(**options, resume=session.id) as again:
            await again.run("DELEGATE the rest.")
    store = SqliteStore(isolated["home"])
    events = await read_events(store, session.id)
    heads = list_heads(events)
    assert len(heads) == 9
    recorded = list(heads.values())
    for request in server.requests:
        assert read_request(request) in recorded
    assert all(read_request(request)[1] for request in server.requests)
    assert "Write short answers." in heads["1"][0]
    starts = [event for event in events if isinstance(event, RunStarted)]
    described = [event.run for event in starts if event.head and event.head.parts]
    assert described == [run for run in described if run.startswith("1")]
    assert len(encode_event(starts[-1])) < 1_200


async def test_a_resumed_run_records_its_head_again(isolated: IsolatedOptions) -> None:
    endless = EndlessModel()
    session_id = await leave_unfinished_run(endless, isolated)
    model = ScriptedModel(lambda _: "Done.")
    async with Session(
        model=model, **isolated, resume=session_id, integrations=Integrations(agent_files=False)
    ) as session:
        await session.resume_unfinished()
    events = await read_events(SqliteStore(isolated["home"]), session_id)
    resumed = next(event for event in events if isinstance(event, RunResumed))
    assert resumed.head is not None
    assert list_heads(events)["1"][0] == model.requests[0].system


async def test_a_fork_has_the_heads_of_its_copy(isolated: IsolatedOptions) -> None:
    model = ScriptedModel(lambda _: "Done.")
    async with Session(model=model, **isolated) as session:
        await session.run("First.")
    async with Session(model=model, **isolated, resume=session.id, fork=True) as fork:
        await fork.run("Second.")
    events = await read_events(SqliteStore(isolated["home"]), fork.id)
    heads = list_heads(events)
    assert heads["1"] == heads["2"] and heads["2"][0] == model.requests[-1].system


async def test_hostile_texts_of_tools_are_recorded(isolated: IsolatedOptions) -> None:
    async def run(context: object, arguments: object) -> ToolResult:
        return ToolResult("")

    parameters = {"type": "object", "title": "lone \ud800", "maximum": 10**400, "x": object}
    odd = Tool(name="odd", description="\udfff", parameters=parameters, parse=dict, run=run)
    journal = MemoryJournal()
    model = ScriptedModel(lambda _: "Done.")
    async with Session(model=model, **isolated, journal=journal, tools=[odd]) as session:
        await session.run("Hello")
    events = [decode_event(encode_event(event)) for event in journal.events]
    tools = list_heads(events)["1"][1]
    assert next(tool for tool in tools if tool["name"] == "odd")["input_schema"]["title"]


def test_records_of_older_versions_have_no_heads() -> None:
    body = b'{"type":"run_resumed","at":1.0,"run":"1"}'
    event = decode_event(body)
    assert isinstance(event, RunResumed) and event.head is None
    RequestHeads().load([event])


def test_an_export_has_no_secrets_of_a_head() -> None:
    head = RequestHeads().describe(RequestConfig(system=f"The key is {SECRET}."))
    event = RunResumed(at=1.0, run="1", head=head)
    redactor = Redactor({"ANTHROPIC_API_KEY": SECRET})
    body = encode_event(next(iter(redact_events([event], redactor))))
    assert b"The key is" in body and SECRET.encode() not in body
