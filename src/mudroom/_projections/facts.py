"""Facts about the work of a conversation, computed from its events; no model writes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct, field

from .._core.events import (
    MessageDelivered,
    MessageSent,
    PermissionDecided,
    RunFinished,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
)
from .._core.ports.board import update_claims
from .._core.runs import Brief, Report
from .engine_text import quote
from .safe_text import describe_call, sanitize_line

# So many lines of one list are kept, the newest.
_MAX_LISTED = 300
_MAX_COMMANDS = 100
# Characters of one row; a path may have 4,096.
_MAX_ROW = 4_200
_REPORT_LENGTH = 300
_TASK_LENGTH = 300


class ConversationFacts(Struct):
    """Facts about a conversation's runs; each list is in the order of the events.

    Attributes:
        task: prompt of the run, if it is a child.
        earlier_tasks: prompts of the earlier runs of a named child.
        user_texts: prompts and messages of the user.
        read, changed: files, each with the last turn in which that happened ("1.8").
        failed_commands: commands whose last call failed, with the last line of the output.
        decisions: calls that the user or a rule allowed or refused.
        children: child runs with their briefs, and their reports if they ended.
        commands: background commands that work, by id.
        unread: messages that wait for the next request.
        todo: the last todo list.
        claims: tasks on the board that the runs work on, by id.
        kept_results: whole results of tools that keep them, such as skills, by call.
    """

    task: str = ""
    earlier_tasks: list[str] = field(default_factory=list[str])
    user_texts: list[str] = field(default_factory=list[str])
    read: dict[str, str] = field(default_factory=dict[str, str])
    changed: dict[str, str] = field(default_factory=dict[str, str])
    failed_commands: dict[str, str] = field(default_factory=dict[str, str])
    decisions: dict[str, str] = field(default_factory=dict[str, str])
    children: dict[str, tuple[Brief, Report | None]] = field(
        default_factory=dict[str, "tuple[Brief, Report | None]"]
    )
    commands: dict[str, str] = field(default_factory=dict[str, str])
    unread: dict[str, str] = field(default_factory=dict[str, str])
    todo: str = ""
    claims: dict[int, str] = field(default_factory=dict[int, str])
    kept_results: dict[str, str] = field(default_factory=dict[str, str])


def collect_facts(
    events: Iterable[StoredEvent], runs: Collection[str], kept_tools: Collection[str]
) -> ConversationFacts:
    """Collect the facts about the runs of one conversation.

    Arguments:
        runs: ids of the runs.
        kept_tools: names of the tools whose results stay whole.
    """
    facts = ConversationFacts()
    calls: dict[tuple[str, str], ToolCallStarted] = {}
    for event in events:
        if isinstance(event, RunStarted):
            _add_run(facts, event.brief, runs)
        elif isinstance(event, RunFinished):
            _add_report(facts, event)
            if event.run in runs:
                facts.commands.clear()
        elif event.run not in runs:
            continue
        elif isinstance(event, ToolCallStarted):
            calls[event.run, event.call.id] = event
        elif isinstance(event, ToolCallFinished):
            _add_result(facts, event, calls.get((event.run, event.call_id)), kept_tools)
        elif isinstance(event, PermissionDecided):
            _add_decision(facts, event)
        elif isinstance(event, MessageSent | MessageDelivered):
            _add_message(facts, event)
    return facts


def _add_run(facts: ConversationFacts, brief: Brief, runs: Collection[str]) -> None:
    if brief.is_compaction:
        return
    if brief.parent in runs:
        facts.children[brief.run_id] = (brief, None)
    elif brief.run_id in runs and brief.parent:
        if facts.task:
            facts.earlier_tasks.append(facts.task)
        facts.task = brief.prompt
    elif brief.run_id in runs:
        facts.user_texts.append(brief.prompt)


def _add_report(facts: ConversationFacts, event: RunFinished) -> None:
    if event.run in facts.children:
        facts.children[event.run] = (facts.children[event.run][0], event.report)


def _add_message(facts: ConversationFacts, event: MessageSent | MessageDelivered) -> None:
    if isinstance(event, MessageSent):
        facts.unread[event.message.id] = event.message.text
        facts.commands.pop(event.message.sender, None)
        return
    facts.unread.pop(event.message_id, None)
    if event.origin == "user":
        facts.user_texts.append(event.text)


def _add_decision(facts: ConversationFacts, event: PermissionDecided) -> None:
    verdict = "allowed" if event.allowed else "refused"
    reason = event.approver_reason or event.policy_reason
    about = " ".join(filter(None, (event.name, event.command_part, event.rule)))
    _move_to_end(facts.decisions, about, f"{verdict}: {about} ({reason})")


def _add_result(
    facts: ConversationFacts,
    event: ToolCallFinished,
    started: ToolCallStarted | None,
    kept_tools: Collection[str],
) -> None:
    result = event.result
    turn = f"{event.run}.{event.turn}"
    for path in result.reads:
        _move_to_end(facts.read, path, turn)
    for path in (*result.changes, *result.observed_changes):
        _move_to_end(facts.changed, path, turn)
    if started is None:
        return
    title = describe_call(started.call, started.title)
    if started.view == "command":
        facts.failed_commands.pop(title, None)
        if result.error:
            last_line = sanitize_line(result.text.strip().rpartition("\n")[2])
            facts.failed_commands[title] = f"turn {turn}: {last_line}"
    if result.error:
        return
    if result.detail.get("background") and (command := result.detail.get("command")):
        facts.commands[command] = title
    if started.view == "todos":
        facts.todo = result.text
    update_claims(facts.claims, result.detail)
    if event.name in kept_tools and "run" not in result.detail:
        _move_to_end(facts.kept_results, title, result.text)


def _move_to_end(values: dict[str, str], key: str, value: str) -> None:
    values.pop(key, None)
    values[key] = value


def format_facts(facts: ConversationFacts) -> str:
    sections = (
        ("Files changed (last turn)", [f"{path} ({at})" for path, at in facts.changed.items()]),
        ("Files read (last turn)", [f"{path} ({at})" for path, at in facts.read.items()]),
        (
            "Commands that failed last",
            [f"{call}: {end}" for call, end in facts.failed_commands.items()][-_MAX_COMMANDS:],
        ),
        ("Permission decisions", list(facts.decisions.values())[-_MAX_COMMANDS:]),
        ("Child runs that still work", list(_format_open_children(facts))),
        ("Child runs that ended", list(_format_ended_children(facts))),
        (
            "Background commands that still work",
            [f"{command}: {title}" for command, title in facts.commands.items()],
        ),
        ("Messages that wait for you", [sanitize_line(text) for text in facts.unread.values()]),
        (
            "Tasks of the board that you work on",
            [f"#{task} {sanitize_line(subject)}" for task, subject in facts.claims.items()],
        ),
        ("Todo list", facts.todo.splitlines()),
    )
    return "\n".join(line for title, rows in sections for line in _format_section(title, rows))


def _format_section(title: str, rows: list[str]) -> Iterator[str]:
    if not rows:
        return
    yield f"## {title}"
    left_out = len(rows) - _MAX_LISTED
    if left_out > 0:
        yield f"({left_out} earlier ones are only in the record)"
    for row in rows[-_MAX_LISTED:]:
        yield f"- {quote(sanitize_line(row, _MAX_ROW))}"


def _format_open_children(facts: ConversationFacts) -> Iterator[str]:
    for brief, report in facts.children.values():
        if report is None:
            task = sanitize_line(brief.prompt, _TASK_LENGTH)
            yield f"{_format_child(brief)} {sanitize_line(brief.description)}: {task}"


def _format_ended_children(facts: ConversationFacts) -> Iterator[str]:
    for brief, report in facts.children.values():
        if report is not None:
            text = sanitize_line(report.text or report.error, _REPORT_LENGTH)
            yield f"{_format_child(brief)} {brief.description}, {report.reason}: {text}"


def _format_child(brief: Brief) -> str:
    name = f"{brief.name}, " if brief.name else ""
    return f"{brief.run_id} ({name}{brief.agent.name})"
