"""SubAgentScope: its signature, prompts, context, emitted values and events."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

import mudroom
import mudroom.scope
from mudroom import (
    AnyEvent,
    AssistantMessage,
    ContextState,
    ModelConfig,
    OutputConfig,
    PromptConfig,
    Reason,
    RunConfig,
    Session,
    SubAgentScope,
    SubagentTerminateMode,
    TextBlock,
    ToolCallBlock,
    ToolConfig,
    UsageError,
    UserMessage,
)
from mudroom._adapters.models.scripted import call
from mudroom._core.events import RunFinished, RunStarted, ToolCallFinished
from mudroom.errors import UnknownName
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import CONTEXT, OUTPUTS, PROMPT, Open, create_scope, emit, join_texts, run_scope

EMIT_BOTH = [emit("title", "T"), emit("author", "A")]
PLAIN_PROMPT = PromptConfig(system_prompt="Work.")


def test_create_is_a_coroutine_and_takes_the_configs_in_order() -> None:
    assert list(inspect.signature(SubAgentScope.create).parameters) == [
        "name",
        "runtime_context",
        "prompt_config",
        "model_config",
        "run_config",
        "tool_config",
        "output_config",
        "on_message",
    ]
    assert inspect.iscoroutinefunction(SubAgentScope.create)


def test_every_scope_name_is_exported_from_mudroom() -> None:
    names = (
        "SubAgentScope ContextState PromptConfig ModelConfig RunConfig ToolConfig OutputConfig "
        "OutputObject SubagentTerminateMode"
    )
    assert set(names.split()) == set(mudroom.scope.__all__)
    for name in names.split():
        assert getattr(mudroom, name) is getattr(mudroom.scope, name)


async def test_the_complete_example_works(scripted: Open) -> None:
    messages: list[str] = []
    script = [
        [call("read", file_path="paper.md")],
        [emit("title", "On Mud"), emit("author", "A. Boot")],
    ]
    async with scripted(script) as (session, model):
        scope = await SubAgentScope.create(
            "doc-extractor",
            session,
            PROMPT,
            ModelConfig(model="inherit", temp=0.2, top_p=0.9),
            RunConfig(max_time_minutes=2, max_turns=8),
            tool_config=ToolConfig(tools=["read", "grep"]),
            output_config=OUTPUTS,
            on_message=messages.append,
        )
        assert scope.output.emitted_vars == {} and scope.output.report is None
        assert scope.output.terminate_reason is Reason.ERROR
        await scope.run_non_interactive(CONTEXT)
    assert scope.output.emitted_vars == {"title": "On Mud", "author": "A. Boot"}
    assert scope.output.terminate_reason is SubagentTerminateMode.GOAL
    report = scope.output.report
    assert report is not None and report.turns == 2
    assert report.outputs == scope.output.emitted_vars
    assert report.reason is scope.output.terminate_reason
    assert model.requests[0].tools == ("read", "grep", "self.emitvalue")
    assert messages


async def test_session_scope_is_create_and_run_in_one_call(scripted: Open) -> None:
    async with scripted([EMIT_BOTH]) as (session, _):
        output = await session.scope("reader", PROMPT, output_config=OUTPUTS, context=CONTEXT)
    assert output.emitted_vars == {"title": "T", "author": "A"}
    assert output.terminate_reason is Reason.GOAL


async def test_a_request_has_the_model_config_and_a_name_without_a_dot_for_the_emit_tool(
    folder: Path,
) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        arguments = {"emit_variable_name": "title", "emit_variable_value": "T"}
        return (ToolCallBlock(f"c{request.number}", request.tools[-1], arguments),)

    config = ModelConfig(model="inherit", temp=0.2, top_p=0.9)
    outputs = OutputConfig(outputs={"title": "t"})
    async with ModelServer(answer) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        async with Session(
            model="anthropic:m-1", journal="memory", environ=environ, cwd=str(folder)
        ) as session:
            scope = await run_scope(
                session, prompt_config=PLAIN_PROMPT, model_config=config, output_config=outputs
            )
    body = server.requests[0].json
    assert (body["model"], body["temperature"], body["top_p"]) == ("m-1", 0.2, 0.9)
    assert server.requests[0].tools == ["self_emitvalue"]
    assert scope.output.emitted_vars == {"title": "T"}


async def test_a_model_string_replaces_the_model_of_the_session(scripted: Open) -> None:
    async with scripted([]) as (session, _):
        scope = await create_scope(session, model_config=ModelConfig(model="unknown:model"))
        with pytest.raises(UnknownName, match="unknown"):
            await scope.run_non_interactive(CONTEXT)


async def test_an_undeclared_name_is_an_error_that_lists_the_declared_ones(scripted: Open) -> None:
    async with scripted([[emit("titel", "x"), emit("title", "first")], EMIT_BOTH]) as (
        session,
        model,
    ):
        scope = await run_scope(session, output_config=OUTPUTS)
    result = model.requests[1].results[0]
    assert result.error
    assert "titel" in result.text
    assert "title, author" in result.text
    assert scope.output.emitted_vars == {"title": "T", "author": "A"}, "the last value counts"


async def test_without_declared_outputs_any_value_may_be_emitted(scripted: Open) -> None:
    async with scripted([[emit("whatever", "x")], "Done."]) as (session, _):
        scope = await run_scope(session, output_config=OutputConfig())
    assert scope.output.emitted_vars == {"whatever": "x"}
    assert scope.output.terminate_reason is Reason.GOAL


async def test_missing_keys_are_named_before_any_model_call(scripted: Open) -> None:
    prompt = PromptConfig(system_prompt="${a.b} ${doc_path} ${ c } ${a.b}")
    message = r"^Missing context values for the following keys: a\.b, c$"
    async with scripted([]) as (session, model):
        scope = await create_scope(session, prompt_config=prompt)
        with pytest.raises(UsageError, match=message):
            await scope.run_non_interactive(CONTEXT)
    assert not model.requests
    assert scope.output.terminate_reason is Reason.ERROR


async def test_context_state_gets_sets_and_lists_keys(scripted: Open) -> None:
    context = ContextState(doc_path="old")
    context.set("doc_path", "new.md")
    context.set("n", 3)
    assert context.get("doc_path") == "new.md"
    assert context.get("nothing") is None
    assert context.get_keys() == ["doc_path", "n"]
    async with scripted(["Done."]) as (session, model):
        await run_scope(session, context)
    assert "author from new.md." in model.requests[0].system


async def test_initial_messages_come_after_the_environment(scripted: Open) -> None:
    messages = [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "A"},
        UserMessage((TextBlock("Q2"),)),
        AssistantMessage((TextBlock("A2"),)),
    ]
    async with scripted(["Done."]) as (session, model):
        await run_scope(session, prompt_config=PromptConfig(initial_messages=messages))
    texts = [join_texts(message) for message in model.requests[0].messages[1:]]
    assert texts == ["Got it. Thanks for the context!", "Q", "A", "Q2", "A2", "Get Started!"]
    assert model.requests[0].system == ""


async def test_the_system_prompt_gets_the_output_rules_and_the_non_interactive_rules(
    scripted: Open,
) -> None:
    async with scripted([EMIT_BOTH]) as (session, model):
        await run_scope(session, output_config=OUTPUTS)
    system = model.requests[0].system
    assert system.startswith("Extract title and author from paper.md.")
    for part in (
        "self.emitvalue",
        "- title: the document's title",
        "- author: its author",
        "non-interactive",
        "cannot ask the user",
    ):
        assert part in system


async def test_prompt_id_is_session_run_turn_on_every_event(scripted: Open) -> None:
    events: list[AnyEvent] = []
    async with scripted([[call("read", file_path="paper.md")], EMIT_BOTH]) as (session, _):
        session.watch(events.append)
        await run_scope(session, tool_config=ToolConfig(tools=["read"]), output_config=OUTPUTS)
        prompt_ids = {event.prompt_id for event in events if event.run}
        assert prompt_ids == {f"{session.id}#1#{turn}" for turn in (0, 1, 2)}
    calls = [event for event in events if isinstance(event, ToolCallFinished)]
    assert [event.prompt_id.rpartition("#")[2] for event in calls] == ["1", "2", "2"]


async def test_prompt_ids_of_scopes_with_the_same_name_differ(scripted: Open) -> None:
    events: list[AnyEvent] = []
    async with scripted(lambda _: EMIT_BOTH) as (session, _):
        session.watch(events.append)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(run_scope(session, output_config=OUTPUTS))
    prompt_ids = {
        event.run: event.prompt_id for event in events if isinstance(event, ToolCallFinished)
    }
    assert len(prompt_ids) == len(set(prompt_ids.values())) == 3


async def test_a_scope_uses_the_loop_and_the_journal_of_the_session(scripted: Open) -> None:
    events: list[AnyEvent] = []
    async with scripted(["Done.", "The root's."]) as (session, _):
        session.watch(events.append)
        await run_scope(session)
        report = await session.run("And you?")
    briefs = [event.brief for event in events if isinstance(event, RunStarted)]
    assert [(brief.agent.name, brief.depth) for brief in briefs] == [
        ("doc-extractor", 1),
        ("main", 0),
    ]
    assert len([event for event in events if isinstance(event, RunFinished)]) == 2
    assert report.text == "The root's."


async def test_conversation_and_scope_do_not_see_each_other(scripted: Open) -> None:
    async with scripted(["SECRET-ANSWER", "Done.", "Bye."]) as (session, model):
        await session.run("SECRET-PROMPT")
        await run_scope(session)
        await session.run("Go on.")
    assert "SECRET" not in str(model.requests[1].messages) + model.requests[1].system
    assert "Get Started" not in str(model.requests[2].messages)
