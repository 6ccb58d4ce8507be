"""SubAgentScope, sentence by sentence.

Each test is named after the row of the mission it proves.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import platform
import time
from pathlib import Path
from typing import Any

import pytest

import mudroom
import mudroom.scope
from mudroom import (
    AnyEvent,
    AssistantMessage,
    ContextState,
    ModelConfig,
    ModelError,
    OutputConfig,
    PromptConfig,
    Reason,
    RunConfig,
    Session,
    SubAgentScope,
    SubagentTerminateMode,
    TextBlock,
    Tool,
    ToolConfig,
    ToolResult,
    UsageError,
    UserMessage,
    tool,
)
from mudroom._core.events import RunFinished, RunStarted, ToolCallFinished, TurnStarted
from mudroom._core.messages import Message
from mudroom.errors import ModelRefused, UnknownName
from mudroom.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Open, emit

PROMPT = PromptConfig(system_prompt="Extract title and author from ${doc_path}.")
OUTPUTS = OutputConfig(outputs={"title": "the document's title", "author": "its author"})
HERE = ContextState(doc_path="paper.md")


async def scope_of(
    session: Session, prompt: PromptConfig = PROMPT, run: RunConfig | None = None, **more: Any
) -> SubAgentScope:
    return await SubAgentScope.create(
        "doc-extractor", session, prompt, ModelConfig(), run or RunConfig(), **more
    )


def words(message: Message) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))


def test_create_is_a_coroutine_and_takes_the_configs_in_order() -> None:
    parameters = list(inspect.signature(SubAgentScope.create).parameters)
    assert parameters[:5] == [
        "name",
        "runtime_context",
        "prompt_config",
        "model_config",
        "run_config",
    ]
    assert parameters[5:] == ["tool_config", "output_config", "on_message"]
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
    heard: list[str] = []
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
            on_message=heard.append,
        )
        await scope.run_non_interactive(HERE)
    assert scope.output.emitted_vars == {"title": "On Mud", "author": "A. Boot"}
    assert scope.output.terminate_reason is SubagentTerminateMode.GOAL
    assert model.requests[0].tools == ("read", "grep", "self.emitvalue")


async def test_terminate_modes_include_goal_error_timeout_and_max_turns(scripted: Open) -> None:
    assert {"ERROR", "TIMEOUT", "GOAL", "MAX_TURNS", "CANCELLED", "BUDGET", "LOOP"} <= {
        mode.value for mode in SubagentTerminateMode
    }


async def test_output_holds_emitted_vars_terminate_reason_and_the_whole_report(
    scripted: Open,
) -> None:
    async with scripted([[emit("title", "T"), emit("author", "A")]]) as (session, _):
        scope = await scope_of(session, output_config=OUTPUTS)
        assert (scope.output.emitted_vars, scope.output.terminate_reason, scope.output.report) == (
            {},
            Reason.ERROR,
            None,
        )
        await scope.run_non_interactive(HERE)
    report = scope.output.report
    assert report is not None
    assert (report.outputs, report.reason, report.turns) == (
        scope.output.emitted_vars,
        scope.output.terminate_reason,
        1,
    )


@pytest.mark.parametrize(
    ("given", "said"), [({}, "neither"), ({"system_prompt": "a", "initial_messages": []}, "both")]
)
async def test_exactly_one_of_system_prompt_and_initial_messages(
    scripted: Open, given: dict[str, Any], said: str
) -> None:
    async with scripted([]) as (session, model):
        scope = await scope_of(session, PromptConfig(**given))
        with pytest.raises(
            UsageError, match=f"PromptConfig .* system_prompt and initial_messages, not {said}"
        ):
            await scope.run_non_interactive(ContextState())
    assert scope.output.terminate_reason is Reason.ERROR
    assert not model.requests


async def test_model_config_sets_temperature_and_top_p_and_inherits_the_model(
    scripted: Open,
) -> None:
    def answer(asked: ServerRequest) -> ServerAnswer:
        return "Done."

    async with ModelServer(answer) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        async with Session(model="anthropic:m-1", journal="memory", environ=environ) as session:
            config = ModelConfig(model="inherit", temp=0.2, top_p=0.9)
            await (
                await SubAgentScope.create(
                    "a", session, PromptConfig(system_prompt="x"), config, RunConfig()
                )
            ).run_non_interactive(ContextState())
    body = server.requests[0].json
    assert (body["model"], body["temperature"], body["top_p"]) == ("m-1", 0.2, 0.9)


async def test_a_model_string_replaces_the_model_of_the_session(scripted: Open) -> None:
    async with scripted([]) as (session, _):
        config = ModelConfig(model="nobody:knows")
        scope = await SubAgentScope.create(
            "a", session, PromptConfig(system_prompt="x"), config, RunConfig()
        )
        with pytest.raises(UnknownName, match="nobody"):
            await scope.run_non_interactive(ContextState())


async def test_max_turns_ends_it_as_max_turns(scripted: Open) -> None:
    def answer(request: Request) -> Answer:
        return (
            [call("read", file_path="paper.md", offset=request.number)]
            if request.tools
            else "So far: nothing."
        )

    async with scripted(answer) as (session, model):
        scope = await scope_of(
            session,
            run=RunConfig(max_turns=2),
            tool_config=ToolConfig(tools=["read"]),
            output_config=OUTPUTS,
        )
        await scope.run_non_interactive(HERE)
    assert scope.output.terminate_reason is Reason.MAX_TURNS
    assert scope.output.report is not None
    assert scope.output.report.text == "So far: nothing."
    assert len([request for request in model.requests if request.tools]) == 2


async def test_tokens_are_a_budget_too(scripted: Open) -> None:
    def answer(request: Request) -> Answer:
        return (
            [call("read", file_path="paper.md", offset=request.number)]
            if request.tools
            else "So far."
        )

    async with scripted(answer) as (session, _):
        scope = await scope_of(
            session, run=RunConfig(max_input_tokens=1), tool_config=ToolConfig(tools=["read"])
        )
        await scope.run_non_interactive(HERE)
    assert scope.output.terminate_reason is Reason.BUDGET


async def test_values_emitted_before_a_limit_are_kept(scripted: Open) -> None:
    def answer(request: Request) -> Answer:
        return [emit("title", "On Mud")] if request.tools else "The author is not named."

    async with scripted(answer) as (session, _):
        scope = await scope_of(session, run=RunConfig(max_turns=1), output_config=OUTPUTS)
        await scope.run_non_interactive(HERE)
    assert scope.output.emitted_vars == {"title": "On Mud"}
    assert scope.output.terminate_reason is Reason.MAX_TURNS


async def test_an_unknown_tool_is_an_error_that_lists_the_known_ones(scripted: Open) -> None:
    async with scripted([]) as (session, _):
        with pytest.raises(UnknownName, match="unknown tool 'warp'") as raised:
            await scope_of(session, tool_config=ToolConfig(tools=["warp"]))
    assert {"read", "bash", "grep"} <= set(raised.value.known)


async def test_tools_may_be_names_of_other_systems_objects_or_declarations(scripted: Open) -> None:
    @tool
    def double(n: int) -> int:
        "Twice a number."
        return 2 * n

    def halved(given: dict[str, Any]) -> float:
        return given["n"] / 2

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    half: dict[str, Any] = {
        "name": "half",
        "description": "Half a number.",
        "parameters": schema,
        "handler": halved,
    }
    bare = {"name": "third", "description": "A third.", "parameters": schema}
    script = [
        [call("double", n=4), call("half", n=5), call("third", n=9), call("half", n="x")],
        "Done.",
    ]
    async with scripted(script) as (session, model):
        scope = await scope_of(
            session, tool_config=ToolConfig(tools=["Read_File", double, half, bare])
        )
        await scope.run_non_interactive(HERE)
    assert model.requests[0].tools == ("read", "double", "half", "third")
    results = model.requests[1].results
    assert [result.text for result in results[:2]] == ["8", "2.5"]
    assert results[2].error
    assert "has no implementation here" in results[2].text
    assert results[3].error
    assert "n:" in results[3].text


async def test_without_a_tool_config_it_has_no_tools(scripted: Open) -> None:
    async with scripted(["Done."]) as (session, model):
        await (await scope_of(session)).run_non_interactive(HERE)
    assert model.requests[0].tools == ()


async def test_an_undeclared_name_is_an_error_that_lists_the_declared_ones(
    scripted: Open,
) -> None:
    script = [[emit("titel", "x")], [emit("title", "T"), emit("author", "A")]]
    async with scripted(script) as (session, model):
        scope = await scope_of(session, output_config=OUTPUTS)
        await scope.run_non_interactive(HERE)
    result = model.requests[1].results[0]
    assert result.error
    assert "titel" in result.text
    assert "title, author" in result.text
    assert scope.output.emitted_vars == {"title": "T", "author": "A"}


async def test_with_no_outputs_declared_anything_may_be_emitted(scripted: Open) -> None:
    async with scripted([[emit("whatever", "x")], "Done."]) as (session, _):
        scope = await scope_of(session, output_config=OutputConfig())
        await scope.run_non_interactive(HERE)
    assert scope.output.emitted_vars == {"whatever": "x"}
    assert scope.output.terminate_reason is Reason.GOAL


async def test_emitting_twice_overwrites(scripted: Open) -> None:
    script = [[emit("title", "first")], [emit("title", "second"), emit("author", "A")]]
    async with scripted(script) as (session, _):
        scope = await scope_of(session, output_config=OUTPUTS)
        await scope.run_non_interactive(HERE)
    assert scope.output.emitted_vars["title"] == "second"


async def test_the_dot_is_mapped_on_the_wire_and_back(scripted: Open, tmp_path: Path) -> None:
    def answer(asked: ServerRequest) -> ServerAnswer:
        wire = asked.tools[-1]
        return (
            mudroom.ToolCallBlock(
                f"c{asked.number}",
                wire,
                {"emit_variable_name": "title", "emit_variable_value": "T"},
            ),
        )

    async with ModelServer(answer) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        async with Session(
            model="anthropic:m-1", journal="memory", environ=environ, cwd=str(tmp_path)
        ) as session:
            scope = await scope_of(
                session,
                PromptConfig(system_prompt="x"),
                output_config=OutputConfig(outputs={"title": "t"}),
            )
            await scope.run_non_interactive(ContextState())
    assert server.requests[0].tools == ["self_emitvalue"]
    assert scope.output.emitted_vars == {"title": "T"}


async def test_missing_keys_are_named_before_any_model_call(scripted: Open) -> None:
    async with scripted([]) as (session, model):
        scope = await scope_of(session, PromptConfig(system_prompt="${a} ${doc_path} ${b} ${a}"))
        with pytest.raises(
            UsageError, match=r"^Missing context values for the following keys: a, b$"
        ):
            await scope.run_non_interactive(HERE)
    assert not model.requests
    assert scope.output.terminate_reason is Reason.ERROR


async def test_context_state_gets_sets_and_lists_keys(scripted: Open) -> None:
    state = ContextState(doc_path="old")
    state.set("doc_path", "new.md")
    state.set("n", 3)
    assert (state.get("doc_path"), state.get("nothing"), state.get_keys()) == (
        "new.md",
        None,
        ["doc_path", "n"],
    )
    async with scripted(["Done."]) as (session, model):
        await (await scope_of(session)).run_non_interactive(state)
    assert "author from new.md." in model.requests[0].system


def confirming(**parameters: Any) -> Tool:
    async def run(_: Any, __: Any) -> ToolResult:
        raise AssertionError("it must not run")

    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return Tool(
        name="launch",
        description="Launch.",
        parameters=schema,
        parse=dict,
        run=run,
        needs_confirmation=True,
    )


async def test_a_tool_that_needs_confirmation_is_refused_at_creation(scripted: Open) -> None:
    message = (
        'Tool "launch" requires user confirmation and cannot be used in a non-interactive subagent.'
    )
    async with scripted([], tools=[confirming()]) as (session, _):
        for asked in ("launch", confirming()):
            with pytest.raises(UsageError) as raised:
                await scope_of(session, tool_config=ToolConfig(tools=[asked]))
            assert str(raised.value) == message


async def test_tool_with_required_parameters_gets_a_warning_and_is_denied_when_it_asks(
    scripted: Open, caplog: pytest.LogCaptureFixture
) -> None:
    script = [[call("launch", code="0")], "I could not."]
    with caplog.at_level(logging.WARNING, "mudroom"):
        async with scripted(script) as (session, model):
            scope = await scope_of(
                session, tool_config=ToolConfig(tools=[confirming(code={"type": "string"})])
            )
            await scope.run_non_interactive(HERE)
    warning = (
        'Cannot check tool "launch" for interactivity because it requires parameters. '
        "Assuming it is safe for non-interactive use."
    )
    assert [record.getMessage() for record in caplog.records] == [warning]
    assert model.requests[1].results[0].error
    assert "not allowed" in model.requests[1].results[0].text


async def test_the_approver_of_the_session_is_not_asked(scripted: Open) -> None:
    class Yes:
        async def decide(self, question: mudroom.ApprovalRequest) -> mudroom.ApprovalDecision:
            raise AssertionError("asked")

    async with scripted([[call("launch", code="0")], "Done."], approver=Yes()) as (session, model):
        scope = await scope_of(
            session, tool_config=ToolConfig(tools=[confirming(code={"type": "string"})])
        )
        await scope.run_non_interactive(HERE)
    assert model.requests[1].results[0].error


async def test_the_history_begins_with_the_environment_and_its_answer(scripted: Open) -> None:
    async with scripted(["Done."]) as (session, model):
        await (await scope_of(session)).run_non_interactive(HERE)
        folder = session.cwd
    first, second, third = model.requests[0].messages
    for fact in (time.strftime("%Y-%m-%d"), platform.system(), folder, "paper.md"):
        assert fact in words(first)
    assert words(second) == "Got it. Thanks for the context!"
    assert words(third) == "Get Started!"


async def test_initial_messages_come_after_the_environment(scripted: Open) -> None:
    given = [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "A"},
        UserMessage((TextBlock("Q2"),)),
        AssistantMessage((TextBlock("A2"),)),
    ]
    async with scripted(["Done."]) as (session, model):
        await (await scope_of(session, PromptConfig(initial_messages=given))).run_non_interactive(
            ContextState()
        )
    assert [words(message) for message in model.requests[0].messages[1:]] == [
        "Got it. Thanks for the context!",
        "Q",
        "A",
        "Q2",
        "A2",
        "Get Started!",
    ]
    assert model.requests[0].system == ""


async def test_a_wrong_initial_message_is_named(scripted: Open) -> None:
    async with scripted([]) as (session, _):
        scope = await scope_of(
            session, PromptConfig(initial_messages=[{"role": "king", "content": "Q"}])
        )
        with pytest.raises(UsageError, match=r"initial_messages: .*king"):
            await scope.run_non_interactive(ContextState())


async def test_the_time_limit_cancels_a_call_that_hangs(scripted: Open) -> None:
    async def hang(_: Request) -> str:
        await asyncio.sleep(60)
        return "never"

    async with scripted(hang) as (session, _):
        scope = await scope_of(session, run=RunConfig(max_time_minutes=0.05 / 60))
        async with asyncio.timeout(10):
            await scope.run_non_interactive(HERE)
    assert scope.output.terminate_reason is Reason.TIMEOUT


async def test_time_is_checked_after_a_call_too(scripted: Open) -> None:
    @tool
    async def dawdle() -> str:
        "Take a while."
        await asyncio.sleep(0.1)
        return "late"

    def answer(request: Request) -> Answer:
        return [call("dawdle")] if request.tools else "Late."

    async with scripted(answer) as (session, model):
        scope = await scope_of(
            session,
            run=RunConfig(max_time_minutes=0.05 / 60),
            tool_config=ToolConfig(tools=[dawdle]),
        )
        await scope.run_non_interactive(HERE)
    assert scope.output.terminate_reason is Reason.TIMEOUT
    assert len([request for request in model.requests if request.tools]) == 1


async def test_a_cancelled_scope_has_the_reason_cancelled(scripted: Open) -> None:
    async def hang(_: Request) -> str:
        await asyncio.sleep(60)
        return "never"

    async with scripted(hang) as (session, _):
        scope = await scope_of(session)

        def stop(event: AnyEvent) -> None:
            if isinstance(event, TurnStarted):
                asyncio.get_running_loop().call_soon(session.cancel, event.run)

        session.watch(stop)
        await scope.run_non_interactive(HERE)
    assert scope.output.terminate_reason is Reason.CANCELLED


async def test_a_model_call_that_fails_for_good_raises_and_leaves_error(scripted: Open) -> None:
    async with scripted([ModelRefused("bad key")]) as (session, _):
        scope = await scope_of(session)
        with pytest.raises(ModelError, match="bad key"):
            await scope.run_non_interactive(HERE)
    assert scope.output.terminate_reason is Reason.ERROR


async def test_when_all_calls_failed_the_model_is_told_to_try_another_way(
    scripted: Open,
) -> None:
    async with scripted([[call("read", file_path="none.md")], "Done."]) as (session, model):
        await (await scope_of(session, tool_config=ToolConfig(tools=["read"]))).run_non_interactive(
            HERE
        )
    assert "All tool calls of this turn failed" in words(model.requests[1].messages[-1])


async def test_all_emitted_is_goal_at_once_without_another_model_call(scripted: Open) -> None:
    async with scripted([[emit("title", "T"), emit("author", "A")]]) as (session, model):
        scope = await scope_of(session, output_config=OUTPUTS)
        await scope.run_non_interactive(HERE)
    assert scope.output.terminate_reason is Reason.GOAL
    assert len(model.requests) == 1


async def test_a_model_that_stops_with_outputs_missing_is_reminded_of_their_names(
    scripted: Open,
) -> None:
    async with scripted(["I am done.", [emit("title", "T")], "Now?", [emit("author", "A")]]) as (
        session,
        model,
    ):
        scope = await scope_of(session, output_config=OUTPUTS)
        await scope.run_non_interactive(HERE)
    assert "title, author" in words(model.requests[1].messages[-1])
    assert "outputs: author." in words(model.requests[3].messages[-1])
    assert scope.output.terminate_reason is Reason.GOAL


async def test_without_outputs_a_model_that_calls_nothing_has_reached_its_goal(
    scripted: Open,
) -> None:
    async with scripted(["Done."]) as (session, _):
        scope = await scope_of(session)
        await scope.run_non_interactive(HERE)
    assert scope.output.terminate_reason is Reason.GOAL
    assert scope.output.report is not None
    assert scope.output.report.text == "Done."


async def test_the_system_prompt_gets_the_output_rules_and_the_non_interactive_rules(
    scripted: Open,
) -> None:
    async with scripted([[emit("title", "T"), emit("author", "A")]]) as (session, model):
        await (await scope_of(session, output_config=OUTPUTS)).run_non_interactive(HERE)
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
    script = [[call("read", file_path="paper.md")], [emit("title", "T"), emit("author", "A")]]
    async with scripted(script) as (session, _):
        session.watch(events.append)
        await (
            await scope_of(session, tool_config=ToolConfig(tools=["read"]), output_config=OUTPUTS)
        ).run_non_interactive(HERE)
        ids = {event.prompt_id for event in events if event.run}
        assert ids == {f"{session.id}#1#{turn}" for turn in (0, 1, 2)}
    calls = [
        event.prompt_id.rpartition("#")[2]
        for event in events
        if isinstance(event, ToolCallFinished)
    ]
    assert calls == ["1", "2", "2"]


async def test_a_scope_uses_the_loop_and_the_journal_of_the_session(
    scripted: Open,
) -> None:
    events: list[AnyEvent] = []
    async with scripted(["Done.", "The root's."]) as (session, _):
        session.watch(events.append)
        await (await scope_of(session)).run_non_interactive(HERE)
        report = await session.run("And you?")
    started = [event.brief for event in events if isinstance(event, RunStarted)]
    assert [(brief.agent.name, brief.depth) for brief in started] == [
        ("doc-extractor", 1),
        ("main", 0),
    ]
    assert len([event for event in events if isinstance(event, RunFinished)]) == 2
    assert report.text == "The root's."


async def test_conversation_and_scope_do_not_see_each_other(
    scripted: Open,
) -> None:
    async with scripted(["SECRET-ANSWER", "Done.", "Bye."]) as (session, model):
        await session.run("SECRET-PROMPT")
        await (await scope_of(session)).run_non_interactive(HERE)
        await session.run("Go on.")
    assert "SECRET" not in str(model.requests[1].messages) + model.requests[1].system
    assert "Get Started" not in str(model.requests[2].messages)


async def test_on_message_gets_each_text_and_each_tool_line(scripted: Open) -> None:
    heard: list[str] = []
    long = "x" * 400
    script = [["Looking.", call("grep", pattern=long)], "Done."]
    async with scripted(script) as (session, _):
        scope = await scope_of(
            session, tool_config=ToolConfig(tools=["grep"]), on_message=heard.append
        )
        await scope.run_non_interactive(HERE)
    arguments = str({"pattern": long})[:250]
    assert heard == ["Looking.", f"**Executing tool: grep with args {arguments}**", "Done."]


async def test_session_scope_is_create_and_run_in_one_call(scripted: Open) -> None:
    async with scripted([[emit("title", "T"), emit("author", "A")]]) as (session, _):
        output = await session.scope("doc-extractor", PROMPT, output_config=OUTPUTS, context=HERE)
    assert (output.emitted_vars, output.terminate_reason) == (
        {"title": "T", "author": "A"},
        Reason.GOAL,
    )


async def test_a_scope_refuses_the_tool_that_starts_children(scripted: Open) -> None:
    async with scripted([]) as (session, _):
        with pytest.raises(UsageError, match=r"'task': it starts no child runs"):
            await scope_of(session, tool_config=ToolConfig(tools=["read", "Task"]))


async def test_scopes_run_side_by_side(scripted: Open) -> None:
    def answer(request: Request) -> Answer:
        return [emit("title", request.system.split()[5].rstrip(".")), emit("author", "A")]

    async with scripted(answer) as (session, model):
        scopes = [await scope_of(session, output_config=OUTPUTS) for _ in range(5)]
        async with asyncio.TaskGroup() as group:
            for n, scope in enumerate(scopes):
                group.create_task(scope.run_non_interactive(ContextState(doc_path=f"d{n}.md")))
    assert [scope.output.emitted_vars["title"] for scope in scopes] == [
        f"d{n}.md" for n in range(5)
    ]
    assert isinstance(model, ScriptedModel)
