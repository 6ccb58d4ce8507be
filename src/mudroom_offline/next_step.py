"""The next step of a conversation as a pure function of its messages."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from mudroom._core.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mudroom._core.ports import RequestConfig
from mudroom._engine.compaction.summary import SUMMARY_PROMPT
from mudroom._engine.structured_output import EMIT_TOOL
from mudroom.errors import ModelRefused

from .children import run_children
from .file_summaries import summarize
from .module_demo import create_module
from .plans import CannotAnswer, Context, Plan, Request, Steps, Translator, combine
from .quotations import quote_lines
from .requests import find_unknown_words, is_chinese, parse_prompt
from .searches import count_lines, find_symbol
from .technologies import find_technologies

_SUMMARY_HEAD = SUMMARY_PROMPT.partition(",")[0]
_REPOSITORY = re.compile(r"(?m)^Repository: (.+)$")
_PLANS: dict[str, Callable[[Request, Context], Plan]] = {
    "create": create_module,
    "tests": find_technologies,
    "stack": find_technologies,
    "description": quote_lines,
    "run_tests": quote_lines,
    "licence": quote_lines,
    "summarise": summarize,
    "find": find_symbol,
    "count": count_lines,
}


class FinalAnswer(Struct, frozen=True):
    """The text at the end of a run; `is_whole` is False when a part of the prompt is not done."""

    text: str
    is_whole: bool = True


def find_next_step(
    config: RequestConfig, messages: list[Message], *, allow_calls: bool = True
) -> FinalAnswer | tuple[ToolCallBlock, ...]:
    """Return the final answer or the next calls. Raises CannotAnswer; ModelRefused for outputs."""
    if _text_of(messages[-1]).startswith(_SUMMARY_HEAD):
        return FinalAnswer(_summarize_conversation(messages[:-1]))
    text, outputs = _split(messages)
    say = Translator(is_chinese(text))
    names = frozenset(tool.name for tool in config.tools)
    if EMIT_TOOL in names:
        raise ModelRefused(say("no_outputs"), remedy=say("connect_for_outputs"))
    requests, unsupported = parse_prompt(text)
    if not requests:
        raise CannotAnswer(_describe_refusal(unsupported, say))
    repository = _REPOSITORY.search(config.system)
    agents = str([tool.parameters for tool in config.tools if tool.name == "task"])
    reader = "explore" if "'explore'" in agents else ""
    context = Context(names, say, reader, repository[1] if repository else "")
    step = _replay(_run_in_order(requests, unsupported, context), outputs)
    if isinstance(step, FinalAnswer):
        return step
    if not allow_calls:
        return FinalAnswer(say("stopped"), is_whole=False)
    return tuple(
        ToolCallBlock(f"off_{len(messages)}_{number}", call.name, call.arguments)
        for number, call in enumerate(step, 1)
    )


def _describe_refusal(unsupported: list[str], say: Translator) -> str:
    unknown: list[str] = []
    for part in unsupported:
        words = find_unknown_words(part, "")
        # Of Chinese, which has no spaces, half a word may be left over: name the whole phrase.
        english = [word for word in words if not is_chinese(word)]
        unknown += english or [part.strip(" ?？!！。.")[:60]] * bool(words)
    words = say.join(f"“{word}”" for word in dict.fromkeys(unknown[:8]))
    lead = say("not_understood_words", words=words) if words else say("not_understood")
    return f"{lead}\n{say('abilities')}"


def _run_in_order(
    requests: list[Request], unsupported: list[str], context: Context
) -> Steps[FinalAnswer]:
    say = context.say
    parts: list[str] = []
    refusals: list[str] = []
    for request in requests:
        try:
            parts.append((yield from _run_plan(request, context)))
        except CannotAnswer as error:
            refusals.append(str(error))
    note = say("below_repository", folder=context.repository)
    has_searched = any(request.kind not in ("help", "create") for request in requests)
    notes = [note] if context.repository and has_searched and note not in combine(parts) else []
    if not parts:
        raise CannotAnswer("\n".join([*refusals, *notes]))
    parts = [*notes, *parts]
    refusals += [say("not_done", part=part) for part in unsupported]
    return FinalAnswer(combine([*parts, *refusals]), not refusals and not context.problems)


def _run_plan(request: Request, context: Context) -> Plan:
    """Run the plan of a request. A child does work that reads much, if `task` is offered."""
    if request.kind == "help":
        return f"{context.say('introduction')}\n{context.say('abilities')}"
    wants_child = request.delegate or request.kind in ("tests", "stack")
    if "task" not in context.tools or not wants_child or request.kind in ("create", "summarise"):
        return (yield from _PLANS[request.kind](request, context))
    title = context.say(f"title_{request.kind}")
    child = (yield from run_children([request.text.strip()], [title], context))[0]
    if not child.text:
        raise CannotAnswer(child.problem)
    context.problems.extend(filter(None, [child.problem]))
    return combine([child.text, child.problem])


def _replay(
    plan: Steps[FinalAnswer], outputs: list[list[ToolResultBlock]]
) -> list[ToolCallBlock] | FinalAnswer:
    """Run the plan from its start over the outputs so far. Return its next calls or its answer."""
    try:
        step = next(plan)
        for turn in outputs:
            missing = [ToolResultBlock("", call.name, "no result", error=True) for call in step]
            step = plan.send([*turn, *missing][: len(step)])
    except StopIteration as end:
        return end.value
    return step


def _split(messages: list[Message]) -> tuple[str, list[list[ToolResultBlock]]]:
    """Return the newest prompt and the tool results of each turn since; skip notes beside them."""
    texts: list[str] = []
    turns: list[list[ToolResultBlock]] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            if not message.tool_calls:
                texts.clear()
                turns.clear()
            continue
        results = [block for block in message.content if isinstance(block, ToolResultBlock)]
        if results:
            turns.append(results)
        elif not turns and (text := _text_of(message)):
            texts.append(text)
    return "".join(texts[-1:]), turns


def _summarize_conversation(messages: list[Message]) -> str:
    return "\n\n".join(
        f"{'Answered' if isinstance(message, AssistantMessage) else 'Asked'}: {text}"
        for message in messages
        if (text := _text_of(message)) and not text.startswith(_SUMMARY_HEAD)
    )


def _text_of(message: Message) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))
