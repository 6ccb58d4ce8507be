"""Slash commands that show information or set up the project."""

from __future__ import annotations

import asyncio
import os

from ...._core.listings import count_noun
from ...._core.messages import estimate_tokens
from ...._projections.context_size import describe_receipt, parse_turn_name
from ...._projections.ledger import describe_hook_text, describe_ledger
from ...._projections.run_tree import describe_state, list_idle
from ...._projections.run_view import RunView, format_name
from ...._projections.safe_text import sanitize_line
from ....errors import UnknownName
from ...output.text import format_tokens, format_total_costs, truncate
from ...output.tree_lines import describe_outcome, format_figures
from ..conversation import Conversation


async def context(conversation: Conversation, place: str) -> None:
    """Show what the context contains, at a turn such as "1.8", or now with ""."""
    if place:
        run, turn = parse_turn_name(place)
        if run not in conversation.tree.runs:
            raise UnknownName("run", run, conversation.tree.runs)
        receipt = conversation.status.receipts.find(run, turn)
        conversation.ui.scrollback.write_table(describe_receipt(receipt))
        return
    from ...._adapters.agent_files import load_context_files

    session = conversation.session
    files = await asyncio.to_thread(
        load_context_files, session.cwd, user_home=os.path.expanduser("~")
    )
    rows = [("context", _describe_context_size(conversation))]
    rows.extend(_list_shares(conversation))
    rows.extend(describe_receipt(conversation.status.receipts.find()))
    for file in files.files:
        size = format_tokens(estimate_tokens(file.text))
        rows.append(("file", f"{file.path}  ~{size} tokens"))
    ledger = conversation.ledgers.session
    if ledger.hook_bytes:
        rows.append(("hooks", f"{describe_hook_text(ledger)} in all contexts of the session"))
    rows.append(("tools", ", ".join(session.tools)))
    rows.append(("agents", ", ".join(agent.name for agent in session.agents)))
    conversation.ui.scrollback.write_table(rows)


def _list_shares(conversation: Conversation) -> list[tuple[str, str]]:
    """List a row for each part of the conversation's context, largest first."""
    if not conversation.status.context_tokens:
        return []
    sizes = conversation.status.shares.measure()
    total = sum(size for _, size in sizes)
    return [
        (f"  {name}", f"{_format_share(size, total)}, ~{format_tokens(size)} tokens")
        for name, size in sorted(sizes, key=lambda share: -share[1])
    ]


def _format_share(size: int, total: int) -> str:
    share = f"{size / total:.0%}"
    return "<1%" if share == "0%" else share


def _describe_context_size(conversation: Conversation) -> str:
    used = conversation.status.context_tokens
    if not used:
        return "nothing sent yet"
    size = conversation.status.context_window
    if not size:
        return (
            f"{format_tokens(used)} tokens at the last model call; "
            "the context window of this model is not known"
        )
    share = f"{format_tokens(size)} ({used / size:.0%})"
    return f"{format_tokens(used)} of {share} tokens at the last model call"


async def cost(conversation: Conversation, _: str) -> None:
    tree = conversation.tree
    total = sum(root.total_usage.total_tokens for root in tree.roots)
    status = conversation.status
    costs = format_total_costs(status.usd, is_least=status.has_unknown_costs, decimals=4)
    runs = count_noun(len(tree.runs), "run")
    text = f"{format_tokens(total)} tokens in {runs}"
    conversation.print_text(f"{text}, {costs}." if costs else f"{text}.")
    ledger = conversation.ledgers.session
    if ledger.children:
        conversation.print_text(describe_ledger(ledger))


async def view(conversation: Conversation, _: str) -> None:
    """Serve the run viewer until the session ends, opening it in a browser if possible."""
    import webbrowser

    from ...._viewer.server import open_viewer
    from ...._viewer.sources import StoredSessions, make_session_link
    from ...actions.serve_viewer import can_open_browser
    from ...actions.user_store import open_store

    home = conversation.settings.home
    sessions = StoredSessions(open_store(home), home)
    viewer = await conversation.resources.enter_async_context(open_viewer(sessions))
    url = await make_session_link(viewer.url, sessions, conversation.session.id)
    conversation.print_text("Viewer running until this session ends:")
    # On a single line, so that terminals recognise it as a link.
    conversation.ui.scrollback.write_lines([(url, "cyan")])
    if can_open_browser(os.environ):
        await asyncio.to_thread(webbrowser.open, url)


async def agents(conversation: Conversation, _: str) -> None:
    conversation.ui.scrollback.write_table(
        (agent.name, sanitize_line(agent.description)) for agent in conversation.session.agents
    )


async def skills(conversation: Conversation, _: str) -> None:
    from ...actions.agents import load_agents

    skills = (await asyncio.to_thread(load_agents, conversation.session.cwd)).skills
    if not skills:
        conversation.print_text(
            "No skills found. A skill is a folder with a SKILL.md in .agents/skills or "
            ".claude/skills."
        )
    conversation.ui.scrollback.write_table(
        (skill.name, sanitize_line(skill.description)) for skill in skills.values()
    )


async def runs(conversation: Conversation, _: str) -> None:
    if not conversation.tree.roots:
        conversation.print_text("No runs yet.")
        return
    columns = conversation.ui.scrollback.columns() - 1
    for run in conversation.tree.walk():
        conversation.print_text(truncate(_format_run(run), columns), "" if run.depth else "bold")
        for command in run.commands.values():
            if command.is_background:
                text = f"{'  ' * (run.depth + 1)}{command.id}  $ {command.title}  (running)"
                conversation.print_text(truncate(text, columns))
    for teammate in list_idle(conversation.tree):
        text = f"@{format_name(teammate.name)}  {describe_state(teammate)}"
        conversation.print_text(truncate(text, columns))
    if conversation.is_busy or conversation.background_work:
        conversation.print_text(
            "ctrl+t, up and down select one: enter opens it, m sends a message, w wraps it up, x "
            "stops it, ctrl+b sends it to the background.",
            "dim",
        )
    conversation.print_text(
        f"Show a transcript with: mudroom show {conversation.session.id[:8]} --run ID", "dim"
    )


def _format_run(run: RunView) -> str:
    indent = "  " * run.depth
    figures = ", ".join([describe_outcome(run) or run.state, *format_figures(run, None)])
    return f"{indent}{run.run_id}  {run.short_label}  {sanitize_line(run.title)}  ({figures})"


async def doctor(conversation: Conversation, _: str) -> None:
    from ...actions.doctor import STATE_LABELS, Check, run_checks

    def collect() -> list[Check]:
        return list(run_checks(os.environ, starts_servers=False))  # /mcp shows the servers

    styles = {"ok": "", "warn": "yellow"}
    for check in await asyncio.to_thread(collect):
        text = f"{STATE_LABELS[check.state]}  {check.name}: {check.result}"
        conversation.print_text(text, styles.get(check.state, "red"))
        if check.remedy:
            conversation.print_text(f"      {check.remedy}", "dim")


async def init(conversation: Conversation, _: str) -> None:
    from ...actions.init_project import write_starter_files

    for line in write_starter_files(conversation.session.cwd):
        conversation.print_text(line)
