"""The next step of a conversation as a pure function of its messages."""

from __future__ import annotations

import zlib

from mudroom._core.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mudroom._core.ports import RequestConfig
from mudroom._engine.compaction import SUMMARY_PROMPT

from .plans import (
    CallOutput,
    CannotAnswer,
    Context,
    Plan,
    PlannedCall,
    Request,
    StopEarly,
    Translator,
    combine,
)
from .requests import is_chinese, parse_requests
from .router import start_plan

_SUMMARY_HEAD = SUMMARY_PROMPT.partition(",")[0]
_NO_RESULT = CallOutput("no result", is_error=True)
_ABILITIES = """\
The offline model follows rules and did not understand this. It can:
- find which testing framework a project uses, or its dependencies and build tools
- summarise files: "read all .py files and summarize what each one does"
- find where something is defined or used: "where is `parse_config` defined?"
- count files and lines by kind
- write one demo module and check it: "create a new module, then verify it from here"
- do any of these with subtasks.
"""


def find_next_step(
    config: RequestConfig, messages: list[Message], *, allow_calls: bool = True
) -> str | tuple[ToolCallBlock, ...]:
    """Return the text or the tool calls of the next answer; text when calls are not allowed.

    Raises CannotAnswer when no part of the prompt is understood.
    """
    if _text_of(messages[-1]).startswith(_SUMMARY_HEAD):
        return _summarize_conversation(messages[:-1])
    prompt, outputs = _split(messages)
    say = Translator(is_chinese(prompt))
    requests, unsupported = parse_requests(prompt)
    if not requests:
        raise CannotAnswer(say(_ABILITIES))
    context = Context(frozenset(tool.name for tool in config.tools), say, _find_reader(config))
    plan = _run_in_order(requests, unsupported, context)
    step = _replay(plan, outputs)
    if isinstance(step, str):
        return step
    return _with_ids(step, messages, prompt) if allow_calls else _stop_plan(plan)


def count_characters(message: Message) -> int:
    """Return the characters of a message, from which its tokens are estimated."""
    total = 0
    for block in message.content:
        if isinstance(block, ToolCallBlock):
            total += len(block.name) + len(str(block.arguments))
        elif isinstance(block, TextBlock | ToolResultBlock):
            total += len(block.text)
    return total


def _run_in_order(requests: list[Request], unsupported: list[str], context: Context) -> Plan:
    say = context.say
    parts: list[str] = []
    refusals: list[str] = []
    for request in requests:
        try:
            parts.append((yield from start_plan(request, context)))
        except CannotAnswer as error:
            refusals.append(str(error))
        except StopEarly:
            return combine([*parts, say("Stopped before all was done.")])
    if not parts:
        raise CannotAnswer("\n".join(refusals))
    for part in unsupported:
        refusals.append(
            say("Not done, no rule of the offline model covers it: “{part}”.", part=part)
        )
    return combine([*parts, *refusals])


def _replay(plan: Plan, outputs: list[list[CallOutput]]) -> list[PlannedCall] | str:
    """Run the plan over the outputs so far. Return its next calls or its answer."""
    try:
        step = next(plan)
        for turn in outputs:
            missing = len(step) - len(turn)
            step = plan.send([*turn, *[_NO_RESULT] * missing][: len(step)])
    except StopIteration as end:
        return end.value
    return step


def _stop_plan(plan: Plan) -> str:
    """Return the answer of a plan that may make no further call."""
    while True:
        try:
            plan.throw(StopEarly())
        except StopIteration as end:
            return end.value


def _split(messages: list[Message]) -> tuple[str, list[list[CallOutput]]]:
    """Return the newest prompt and the outputs of each turn since.

    Notes beside results are skipped.
    """
    texts: list[str] = []
    turns: list[list[CallOutput]] = []
    call_ids: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            call_ids = [call.id for call in message.tool_calls]
            if call_ids:
                turns.append([])
            else:
                texts.clear()
                turns.clear()
            continue
        results = {
            block.call_id: CallOutput(block.text, block.error)
            for block in message.content
            if isinstance(block, ToolResultBlock)
        }
        if results and turns:
            turns[-1] = [results.get(call_id, _NO_RESULT) for call_id in call_ids]
        elif not turns:
            texts.append(_text_of(message))
    return "\n".join(texts), turns


def _with_ids(
    step: list[PlannedCall], messages: list[Message], prompt: str
) -> tuple[ToolCallBlock, ...]:
    """Return the calls with ids that are unique in the conversation and differ between prompts."""
    earlier = sum(len(m.tool_calls) for m in messages if isinstance(m, AssistantMessage))
    prefix = f"off_{zlib.crc32(prompt.encode()):08x}"
    return tuple(
        ToolCallBlock(f"{prefix}_{number}", call.name, call.arguments)
        for number, call in enumerate(step, earlier + 1)
    )


def _find_reader(config: RequestConfig) -> str:
    """Return "explore" when the schema of the `task` tool offers that agent, else ""."""
    for tool in config.tools:
        if tool.name == "task":
            agent = tool.parameters.get("properties", {}).get("agent", {})
            return "explore" if "explore" in agent.get("enum", ()) else ""
    return ""


def _summarize_conversation(messages: list[Message]) -> str:
    """Return prompts and answers of a conversation. An earlier summary is kept as it is."""
    exchanges: list[tuple[str, str]] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            prompt, answer = exchanges.pop() if exchanges else ("", "")
            exchanges.append((prompt, message.text or answer))
        elif text := _text_of(message):
            exchanges.append((text, ""))
    return "\n\n".join(
        answer
        if prompt.startswith(_SUMMARY_HEAD)
        else f"Asked: {prompt}\n\nAnswered: {answer or '(nothing)'}"
        for prompt, answer in exchanges
    )


def _text_of(message: Message) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))
