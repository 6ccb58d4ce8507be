"""What a word that begins with / does in a conversation."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ...errors import UsageError
from ...journals.sqlite.store import session_path
from ...pricing import context_window
from ...projections.ledger import describe_ledger
from ...projections.run_tree import RunView
from ..actions.select_session import MAX_OFFERED, find_session, sessions_of_folder
from ..output.text import (
    Line,
    count_noun,
    display_width,
    format_tokens,
    sanitize,
    sanitize_line,
    truncate,
    wrap,
)
from ..output.tree_lines import describe_outcome, format_figures
from .conversation import Conversation, NextStep, SlashCommand

MODE_DESCRIPTIONS = {
    "default": "edits and commands outside the walls are asked",
    "acceptEdits": "edits, and commands within the sandbox, are not asked",
    "plan": "reading only",
}
"""The modes that Shift+Tab goes through, each in words."""


async def _help(talk: Conversation, _: str) -> None:
    talk.print_text(
        "Say what is to be done; big tasks are cut into small ones, each in a clean context of its own."
    )
    _table(
        talk,
        ((f"{about.name} {about.arguments}".rstrip(), about.description) for about in COMMAND_HELP),
    )
    talk.print_text(
        "? shows the keys. A line that begins with ! is a shell command; @ names a file or an agent."
    )


async def _shortcuts(talk: Conversation, _: str) -> None:
    _table(talk, SHORTCUTS)


async def _clear(talk: Conversation, _: str) -> NextStep:
    talk.print_text("A new session; the old one is in mudroom runs.", "dim")
    return NextStep()


async def _exit(talk: Conversation, _: str) -> NextStep:
    return NextStep(exit_code=0)


async def _compact(talk: Conversation, focus: str) -> None:
    await talk.compact(focus)


async def _context(talk: Conversation, _: str) -> None:
    from ...agent_files import load_context_files

    size, used = context_window(talk.status.model), talk.status.context_tokens
    share = f" of {format_tokens(size)} ({used / size:.0%})" if size else " of ?"
    files = await asyncio.to_thread(
        load_context_files, talk.session.cwd, home=os.path.expanduser("~")
    )
    rows = [
        (
            "context",
            f"{format_tokens(used)}{share} tokens at the last model call"
            if used
            else "nothing sent yet",
        )
    ]
    rows += [
        ("file", f"{file.path}  ~{format_tokens(len(file.text.encode()) // 4)} tokens")
        for file in files.files
    ]
    rows += [
        ("tools", ", ".join(talk.session.tools)),
        ("agents", ", ".join(agent.name for agent in talk.session.agents)),
    ]
    _table(talk, rows)


async def _cost(talk: Conversation, _: str) -> None:
    total = sum(root.total_usage.total_tokens for root in talk.tree.roots)
    spent = [root.report.usd for root in talk.tree.roots if root.report]
    money = (
        f", ${sum(filter(None, spent)):.4f}" if spent and None not in spent and any(spent) else ""
    )
    talk.print_text(
        f"{format_tokens(total)} tokens in {count_noun(len(talk.tree.runs), 'run')}{money}."
    )
    if talk.tally.ledger.children:
        talk.print_text(describe_ledger(talk.tally.ledger))


async def _model(talk: Conversation, words: str) -> NextStep | None:
    from ...models.providers import list_usable_models, parse_model_name

    if not words:
        items = [
            (name, name)
            for name in [*list_usable_models(os.environ), "offline"]
            if name != talk.session.model
        ]
        title = f"It is {talk.session.model}. Go on with which? Or type a name."
        words = await talk.face.choose(title, items, free_text=True) or ""
    if not words:
        return None
    parse_model_name(words)
    return (
        NextStep(resume=talk.session.id, model=words) if talk.tree.roots else NextStep(model=words)
    )


async def _mode(talk: Conversation, words: str) -> NextStep | None:
    now = talk.status.mode
    if not words:
        talk.print_text(f"{now}: {MODE_DESCRIPTIONS.get(now, 'see mudroom permissions')}")
        _table(talk, MODE_DESCRIPTIONS.items())
        return None
    cycle = list(MODE_DESCRIPTIONS)
    wanted = (
        cycle[(cycle.index(now) + 1) % len(cycle) if now in cycle else 0]
        if words == "next"
        else words
    )
    if wanted not in MODE_DESCRIPTIONS:
        raise UsageError(
            f"no such mode: {wanted}", remedy=f"There are {', '.join(MODE_DESCRIPTIONS)}."
        )
    talk.print_text(f"mode {wanted}: {MODE_DESCRIPTIONS[wanted]}", "dim")
    return (
        NextStep(resume=talk.session.id, mode=wanted) if talk.tree.roots else NextStep(mode=wanted)
    )


async def _permissions(talk: Conversation, _: str) -> None:
    from ..actions.load_permissions import load_permissions

    held, notes = load_permissions(talk.settings, talk.session.cwd, attended=True)
    talk.print_text(f"mode {held.mode}; sandbox {talk.session.sandbox.tier}")
    for line in [str(rule) for rule in held.rules] or ["no rules"]:
        talk.print_text(f"  {line}")
    for note in notes:
        talk.print_text(f"  note: {note}", "yellow")


async def _view(talk: Conversation, _: str) -> None:
    import webbrowser

    from ...viewer.server import open_viewer
    from ...viewer.sources import StoredSessions
    from ..actions.serve_viewer import can_open_browser

    door = await talk.resources.enter_async_context(open_viewer(StoredSessions(talk.settings.home)))
    url = f"{door.url}#session={talk.session.id}"
    talk.print_text("For as long as this session is open:")
    talk.face.scrollback.write_lines(
        [(url, "cyan")]
    )  # whole, so that it can be opened where it stands
    if can_open_browser(os.environ):
        await asyncio.to_thread(webbrowser.open, url)


async def _agents(talk: Conversation, _: str) -> None:
    _table(talk, ((agent.name, sanitize_line(agent.description)) for agent in talk.session.agents))


async def _skills(talk: Conversation, _: str) -> None:
    from ...agent_files import load_agent_files

    skills = (await asyncio.to_thread(load_agent_files, talk.session.cwd)).skills
    if not skills:
        talk.print_text(
            "None. A skill is a folder with a SKILL.md in .agents/skills or .claude/skills."
        )
    _table(talk, ((skill.name, sanitize_line(skill.description)) for skill in skills.values()))


async def _tasks(talk: Conversation, _: str) -> None:
    if not talk.tree.roots:
        talk.print_text("None yet.")
        return
    for run in talk.tree.walk():
        words = f"{'  ' * run.depth}{run.run_id}  {run.agent}  {sanitize_line(run.title)}  ({_figures(run)})"
        talk.print_text(
            truncate(words, talk.face.scrollback.columns() - 1), "bold" if not run.depth else ""
        )
    talk.print_text(
        f"mudroom show {talk.session.id[:8]} --run ID shows the transcript of one.", "dim"
    )


def _figures(run: RunView) -> str:
    return ", ".join([describe_outcome(run) or run.state, *format_figures(run, None)])


async def _resume(talk: Conversation, words: str) -> NextStep | None:
    home, here = talk.settings.home, talk.session.cwd
    if words:
        path = find_session(home, here, words)
        return None if path.stem == talk.session.id else NextStep(resume=path.stem)
    from ..actions.list_sessions import summarize_session

    others = islice(
        (info for info in sessions_of_folder(home, here) if info.id != talk.session.id), MAX_OFFERED
    )
    listed = [
        item
        for item in await asyncio.to_thread(lambda: [summarize_session(info) for info in others])
        if item.prompts
    ]
    items = [
        (
            item.id,
            f"{time.strftime('%m-%d %H:%M', time.localtime(item.when))}  {item.name or item.prompt}",
        )
        for item in listed
    ]
    if not items:
        talk.print_text("No other session of this folder is recorded.")
        return None
    chosen = await talk.face.choose("Go on with which session?", items)
    return NextStep(resume=chosen) if chosen else None


async def _rename(talk: Conversation, words: str) -> None:
    from ...journals.sqlite.session_names import rename_session

    rename_session(talk.settings.home, session_path(talk.settings.home, talk.session.id), words)
    talk.print_text(
        f"This session is called {words}: mudroom --resume {words!r} goes on with it."
        if words
        else "It has no name now.",
        "dim",
    )


async def _rewind(talk: Conversation, words: str) -> None:
    roots = [run for run in talk.tree.roots if run.report]
    items = [(run.run_id, sanitize_line(run.title)) for run in reversed(roots)]
    if not items:
        talk.print_text("There is nothing to go back to.")
        return
    chosen = words or await talk.face.choose(
        "Back to before which prompt? Files stay as they are.", items
    )
    if not chosen:
        return
    if chosen not in dict(items):
        raise UsageError(
            f"no prompt has the number {chosen}",
            remedy=f"There are {', '.join(reversed(dict(items)))}.",
        )
    talk.session.rewind(chosen)
    run = talk.tree.runs[chosen]
    talk.face.prefill("" if run.description else run.prompt)
    talk.print_text(
        f"The conversation is as it was before prompt {chosen}; files stay as they are.", "dim"
    )


async def _export(talk: Conversation, words: str) -> None:
    from ..actions.serve_viewer import render_session

    path = Path(talk.session.cwd, os.path.expanduser(words or f"mudroom-{talk.session.id[:8]}.txt"))
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
        "w",
        encoding="utf-8",
        errors="replace",
    ) as file:
        file.writelines(render_session(talk.settings.home, talk.session.id, path.suffix))
    talk.print_text(f"Written: {path}")


async def _doctor(talk: Conversation, _: str) -> None:
    from ..actions.doctor import STATE_LABELS, run_checks

    for check in await asyncio.to_thread(run_checks):
        style = {"ok": "", "warn": "yellow"}.get(check.state, "red")
        talk.print_text(f"{STATE_LABELS[check.state]}  {check.name}: {check.found}", style)
        if check.remedy:
            talk.print_text(f"      {check.remedy}", "dim")


async def _init(talk: Conversation, _: str) -> None:
    from ..actions.init_project import write_starter_files

    for line in write_starter_files(talk.session.cwd):
        talk.print_text(line)


async def _copy(talk: Conversation, _: str) -> None:
    if not talk.last_answer:
        talk.print_text("There is no answer to copy yet.")
        return
    talk.face.scrollback.write(
        f"\x1b]52;c;{base64.b64encode(talk.last_answer.encode('utf-8', 'replace')).decode()}\x07"
    )
    talk.print_text(
        f"The last answer, {count_noun(len(talk.last_answer), 'character')}, was given to the terminal for its clipboard.",
        "dim",
    )


def print_recap(talk: Conversation) -> None:
    """Say what a session that goes on has been about."""
    for run in talk.tree.roots:
        talk.print_text(
            truncate(f"> {sanitize_line(run.title)}", talk.face.scrollback.columns() - 1), "bold"
        )
        talk.print_text(
            f"  {describe_outcome(run) or 'unfinished; it is brought to its end with the next prompt'}",
            "dim",
        )


def _table(talk: Conversation, rows: Iterable[tuple[str, str]]) -> None:
    listed = list(rows)
    columns = talk.face.scrollback.columns() - 1
    room = min(max((display_width(name) for name, _ in listed), default=0), columns // 2)
    lines: list[Line] = []
    for name, what in listed:
        for n, part in enumerate(wrap(sanitize(what), columns - room - 4)):
            lines.append(
                [
                    (
                        f"  {'' if n else name}{' ' * (room - (0 if n else display_width(name)))}  ",
                        "bold",
                    ),
                    (part, ""),
                ]
            )
    talk.face.scrollback.write_lines(*lines)


class CommandHelp(NamedTuple):
    """A command: its name, the words it takes, what it does, and how."""

    name: str
    arguments: str
    description: str
    run: SlashCommand


COMMAND_HELP = (
    CommandHelp("/help", "", "this", _help),
    CommandHelp("/clear", "", "begin a new session", _clear),
    CommandHelp(
        "/compact",
        "[WHAT TO KEEP]",
        "make room: the model sums the conversation up, and goes on from that",
        _compact,
    ),
    CommandHelp("/context", "", "what the model is sent, and how much of it", _context),
    CommandHelp("/cost", "", "tokens and money so far, and what the children kept out", _cost),
    CommandHelp(
        "/model", "[NAME]", "go on with another model, chosen from a list or named; alt+p", _model
    ),
    CommandHelp(
        "/mode", "[NAME]", "what may be done without asking; shift+tab takes the next", _mode
    ),
    CommandHelp("/permissions", "", "mode and rules, and where they come from", _permissions),
    CommandHelp("/agents", "", "who works on tasks", _agents),
    CommandHelp("/skills", "", "what can be learnt on demand", _skills),
    CommandHelp("/tasks", "", "all runs of this session", _tasks),
    CommandHelp("/resume", "[ID]", "go on with another session of this folder", _resume),
    CommandHelp("/rename", "[NAME]", "give this session a name to go on with it by", _rename),
    CommandHelp("/rewind", "[N]", "go back to before an earlier prompt", _rewind),
    CommandHelp(
        "/export",
        "[FILE]",
        "write the whole conversation to a file: .md, .html, or plain text",
        _export,
    ),
    CommandHelp("/copy", "", "the last answer to the clipboard", _copy),
    CommandHelp("/view", "", "open the run viewer in a browser", _view),
    CommandHelp("/doctor", "", "what this machine has and lacks", _doctor),
    CommandHelp("/init", "", "write an AGENTS.md and a sample agent", _init),
    CommandHelp("/exit", "", "leave; so do q, exit and Ctrl-D", _exit),
)

_ALIASES = {"/runs": "/tasks", "/usage": "/cost", "/quit": "/exit", "/q": "/exit", "/new": "/clear"}

_NAMED: dict[str, SlashCommand] = {about.name: about.run for about in COMMAND_HELP}

COMMANDS: dict[str, SlashCommand] = {
    **_NAMED,
    **{alias: _NAMED[name] for alias, name in _ALIASES.items()},
    "?": _shortcuts,
}

SHORTCUTS = (
    ("/ command", "@ file or agent"),
    ("! shell", "its output joins the next prompt"),
    ("esc", "stop the run, keep what it has; twice: clear the line, or go back"),
    ("enter", "while a run is under way: queue"),
    ("ctrl+s", "tell the running model now"),
    ("up, down", "history; with an empty line while children run: select one"),
    ("on a child", "enter: its transcript, m: a word to it, w: wrap up, x: stop"),
    ("ctrl+x ctrl+k", "stop everything"),
    ("shift+tab, alt+p", "next permission mode; another model"),
    ("ctrl+b", "say how to go on typing while a run is under way"),
    ("ctrl+o", "the last result in full"),
    ("ctrl+t", "tasks"),
    ("ctrl+r", "search the history"),
    ("ctrl+g", "write in $EDITOR"),
    ("ctrl+j, alt+enter, \\ enter", "new line"),
    ("ctrl+l", "draw the screen anew"),
    ("ctrl+c", "stop, or clear; twice: leave"),
)
