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
from ...pricing import window
from ...projections.ledger import sentence
from ...projections.run_tree import RunView
from ..actions.select_session import OFFERED, found, of_folder
from ..output.text import Line, broken, clean, cut, one_line, plural, tokens, width
from ..output.tree_lines import figures, outcome
from .conversation import Command, Next, Talk

MODES = {
    "default": "edits and commands outside the walls are asked",
    "acceptEdits": "edits, and commands within the sandbox, are not asked",
    "plan": "reading only",
}
"""The modes that Shift+Tab goes through, each in words."""


async def _help(talk: Talk, _: str) -> None:
    talk.say(
        "Say what is to be done; big tasks are cut into small ones, each in a clean context of its own."
    )
    _table(talk, ((f"{about.name} {about.words}".rstrip(), about.what) for about in ABOUT))
    talk.say(
        "? shows the keys. A line that begins with ! is a shell command; @ names a file or an agent."
    )


async def _shortcuts(talk: Talk, _: str) -> None:
    _table(talk, SHORTCUTS)


async def _clear(talk: Talk, _: str) -> Next:
    talk.say("A new session; the old one is in mudroom runs.", "dim")
    return Next()


async def _exit(talk: Talk, _: str) -> Next:
    return Next(code=0)


async def _compact(talk: Talk, focus: str) -> None:
    await talk.compact(focus)


async def _context(talk: Talk, _: str) -> None:
    from ...agent_files import context_from

    size, used = window(talk.status.model), talk.status.context
    share = f" of {tokens(size)} ({used / size:.0%})" if size else " of ?"
    files = await asyncio.to_thread(context_from, talk.session.cwd, home=os.path.expanduser("~"))
    rows = [
        (
            "context",
            f"{tokens(used)}{share} tokens at the last model call" if used else "nothing sent yet",
        )
    ]
    rows += [
        ("file", f"{file.path}  ~{tokens(len(file.text.encode()) // 4)} tokens")
        for file in files.files
    ]
    rows += [
        ("tools", ", ".join(talk.session.tools)),
        ("agents", ", ".join(agent.name for agent in talk.session.agents)),
    ]
    _table(talk, rows)


async def _cost(talk: Talk, _: str) -> None:
    total = sum(root.subtree.total_tokens for root in talk.tree.roots)
    spent = [root.report.usd for root in talk.tree.roots if root.report]
    money = (
        f", ${sum(filter(None, spent)):.4f}" if spent and None not in spent and any(spent) else ""
    )
    talk.say(f"{tokens(total)} tokens in {plural(len(talk.tree.runs), 'run')}{money}.")
    if talk.tally.ledger.children:
        talk.say(sentence(talk.tally.ledger))


async def _model(talk: Talk, words: str) -> Next | None:
    from ...models.providers import offered, split

    if not words:
        items = [
            (name, name) for name in [*offered(os.environ), "offline"] if name != talk.session.model
        ]
        title = f"It is {talk.session.model}. Go on with which? Or type a name."
        words = await talk.face.choose(title, items, words=True) or ""
    if not words:
        return None
    split(words)
    return Next(resume=talk.session.id, model=words) if talk.tree.roots else Next(model=words)


async def _mode(talk: Talk, words: str) -> Next | None:
    now = talk.status.mode
    if not words:
        talk.say(f"{now}: {MODES.get(now, 'see mudroom permissions')}")
        _table(talk, MODES.items())
        return None
    cycle = list(MODES)
    wanted = (
        cycle[(cycle.index(now) + 1) % len(cycle) if now in cycle else 0]
        if words == "next"
        else words
    )
    if wanted not in MODES:
        raise UsageError(f"no such mode: {wanted}", remedy=f"There are {', '.join(MODES)}.")
    talk.say(f"mode {wanted}: {MODES[wanted]}", "dim")
    return Next(resume=talk.session.id, mode=wanted) if talk.tree.roots else Next(mode=wanted)


async def _permissions(talk: Talk, _: str) -> None:
    from ..actions.load_permissions import permitted

    held, notes = permitted(talk.settings, talk.session.cwd, attended=True)
    talk.say(f"mode {held.mode}; sandbox {talk.session.sandbox.tier}")
    for line in [str(rule) for rule in held.rules] or ["no rules"]:
        talk.say(f"  {line}")
    for note in notes:
        talk.say(f"  note: {note}", "yellow")


async def _view(talk: Talk, _: str) -> None:
    import webbrowser

    from ...viewer.server import viewer
    from ...viewer.sources import Home
    from ..actions.serve_viewer import drawable

    door = await talk.stack.enter_async_context(viewer(Home(talk.settings.home)))
    url = f"{door.url}#session={talk.session.id}"
    talk.say("For as long as this session is open:")
    talk.face.paper.lines([(url, "cyan")])  # whole, so that it can be opened where it stands
    if drawable(os.environ):
        await asyncio.to_thread(webbrowser.open, url)


async def _agents(talk: Talk, _: str) -> None:
    _table(talk, ((agent.name, one_line(agent.description)) for agent in talk.session.agents))


async def _skills(talk: Talk, _: str) -> None:
    from ...agent_files import agents_from

    skills = (await asyncio.to_thread(agents_from, talk.session.cwd)).skills
    if not skills:
        talk.say("None. A skill is a folder with a SKILL.md in .agents/skills or .claude/skills.")
    _table(talk, ((skill.name, one_line(skill.description)) for skill in skills.values()))


async def _tasks(talk: Talk, _: str) -> None:
    if not talk.tree.roots:
        talk.say("None yet.")
        return
    for run in talk.tree.walk():
        words = (
            f"{'  ' * run.depth}{run.run_id}  {run.agent}  {one_line(run.title)}  ({_figures(run)})"
        )
        talk.say(cut(words, talk.face.paper.columns() - 1), "bold" if not run.depth else "")
    talk.say(f"mudroom show {talk.session.id[:8]} --run ID shows the transcript of one.", "dim")


def _figures(run: RunView) -> str:
    return ", ".join([outcome(run) or run.state, *figures(run, None)])


async def _resume(talk: Talk, words: str) -> Next | None:
    home, here = talk.settings.home, talk.session.cwd
    if words:
        path = found(home, here, words)
        return None if path.stem == talk.session.id else Next(resume=path.stem)
    from ..actions.list_sessions import summary

    others = islice((info for info in of_folder(home, here) if info.id != talk.session.id), OFFERED)
    listed = [
        item
        for item in await asyncio.to_thread(lambda: [summary(info) for info in others])
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
        talk.say("No other session of this folder is recorded.")
        return None
    chosen = await talk.face.choose("Go on with which session?", items)
    return Next(resume=chosen) if chosen else None


async def _rename(talk: Talk, words: str) -> None:
    from ...journals.sqlite.session_names import give

    give(talk.settings.home, session_path(talk.settings.home, talk.session.id), words)
    talk.say(
        f"This session is called {words}: mudroom --resume {words!r} goes on with it."
        if words
        else "It has no name now.",
        "dim",
    )


async def _rewind(talk: Talk, words: str) -> None:
    roots = [run for run in talk.tree.roots if run.report]
    items = [(run.run_id, one_line(run.title)) for run in reversed(roots)]
    if not items:
        talk.say("There is nothing to go back to.")
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
    talk.face.draft("" if run.description else run.prompt)
    talk.say(
        f"The conversation is as it was before prompt {chosen}; files stay as they are.", "dim"
    )


async def _export(talk: Talk, words: str) -> None:
    from ..actions.serve_viewer import pieces

    path = Path(talk.session.cwd, os.path.expanduser(words or f"mudroom-{talk.session.id[:8]}.txt"))
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
        "w",
        encoding="utf-8",
        errors="replace",
    ) as file:
        file.writelines(pieces(talk.settings.home, talk.session.id, path.suffix))
    talk.say(f"Written: {path}")


async def _doctor(talk: Talk, _: str) -> None:
    from ..actions.doctor import SIGNS, examination

    for check in await asyncio.to_thread(examination):
        style = {"ok": "", "warn": "yellow"}.get(check.state, "red")
        talk.say(f"{SIGNS[check.state]}  {check.name}: {check.found}", style)
        if check.remedy:
            talk.say(f"      {check.remedy}", "dim")


async def _init(talk: Talk, _: str) -> None:
    from ..actions.init_project import begin

    for line in begin(talk.session.cwd):
        talk.say(line)


async def _copy(talk: Talk, _: str) -> None:
    if not talk.answer:
        talk.say("There is no answer to copy yet.")
        return
    talk.face.paper.write(
        f"\x1b]52;c;{base64.b64encode(talk.answer.encode('utf-8', 'replace')).decode()}\x07"
    )
    talk.say(
        f"The last answer, {plural(len(talk.answer), 'character')}, was given to the terminal for its clipboard.",
        "dim",
    )


def recap(talk: Talk) -> None:
    """Say what a session that goes on has been about."""
    for run in talk.tree.roots:
        talk.say(cut(f"> {one_line(run.title)}", talk.face.paper.columns() - 1), "bold")
        talk.say(
            f"  {outcome(run) or 'unfinished; it is brought to its end with the next prompt'}",
            "dim",
        )


def _table(talk: Talk, rows: Iterable[tuple[str, str]]) -> None:
    listed = list(rows)
    columns = talk.face.paper.columns() - 1
    room = min(max((width(name) for name, _ in listed), default=0), columns // 2)
    lines: list[Line] = []
    for name, what in listed:
        for n, part in enumerate(broken(clean(what), columns - room - 4)):
            lines.append(
                [
                    (f"  {'' if n else name}{' ' * (room - (0 if n else width(name)))}  ", "bold"),
                    (part, ""),
                ]
            )
    talk.face.paper.lines(*lines)


class About(NamedTuple):
    """A command: its name, the words it takes, what it does, and how."""

    name: str
    words: str
    what: str
    run: Command


ABOUT = (
    About("/help", "", "this", _help),
    About("/clear", "", "begin a new session", _clear),
    About(
        "/compact",
        "[WHAT TO KEEP]",
        "make room: the model sums the conversation up, and goes on from that",
        _compact,
    ),
    About("/context", "", "what the model is sent, and how much of it", _context),
    About("/cost", "", "tokens and money so far, and what the children kept out", _cost),
    About(
        "/model", "[NAME]", "go on with another model, chosen from a list or named; alt+p", _model
    ),
    About("/mode", "[NAME]", "what may be done without asking; shift+tab takes the next", _mode),
    About("/permissions", "", "mode and rules, and where they come from", _permissions),
    About("/agents", "", "who works on tasks", _agents),
    About("/skills", "", "what can be learnt on demand", _skills),
    About("/tasks", "", "all runs of this session", _tasks),
    About("/resume", "[ID]", "go on with another session of this folder", _resume),
    About("/rename", "[NAME]", "give this session a name to go on with it by", _rename),
    About("/rewind", "[N]", "go back to before an earlier prompt", _rewind),
    About(
        "/export",
        "[FILE]",
        "write the whole conversation to a file: .md, .html, or plain text",
        _export,
    ),
    About("/copy", "", "the last answer to the clipboard", _copy),
    About("/view", "", "open the run viewer in a browser", _view),
    About("/doctor", "", "what this machine has and lacks", _doctor),
    About("/init", "", "write an AGENTS.md and a sample agent", _init),
    About("/exit", "", "leave; so do q, exit and Ctrl-D", _exit),
)

_ALIASES = {"/runs": "/tasks", "/usage": "/cost", "/quit": "/exit", "/q": "/exit", "/new": "/clear"}

_NAMED: dict[str, Command] = {about.name: about.run for about in ABOUT}

COMMANDS: dict[str, Command] = {
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
