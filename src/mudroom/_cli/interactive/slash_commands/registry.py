"""Table of slash commands with their help texts, and the list of keys."""

from __future__ import annotations

import asyncio

from ...._projections.safe_text import sanitize_line
from ..conversation import Conversation, SlashCommand
from . import files, info, merge, servers, session, settings, team


async def _help(conversation: Conversation, _: str) -> None:
    conversation.print_text(
        "Describe what you want. Large tasks are split into subtasks, each with its own clean "
        "context."
    )
    conversation.ui.scrollback.write_table(
        (f"{command.name} {command.arguments}".rstrip(), command.description)
        for command in SLASH_COMMANDS
    )
    prompt_files = await asyncio.to_thread(conversation.load_prompt_files)
    hidden = [name for name in prompt_files if name in COMMANDS]
    if prompt_files:
        conversation.print_text("Commands and skills of files:")
        conversation.ui.scrollback.write_table(
            (sanitize_line(file.name), sanitize_line(file.source.description))
            for file in prompt_files.values()
            if file.name not in hidden
        )
    for name in hidden:
        conversation.print_text(
            f"{prompt_files[name].source.path} is not used: {name} is built in."
        )
    conversation.print_text(
        "? shows the keys. A line that begins with ! is a shell command; "
        "@ names a file or an agent."
    )


async def _shortcuts(conversation: Conversation, _: str) -> None:
    conversation.ui.scrollback.write_table(SHORTCUTS)


SLASH_COMMANDS = (
    SlashCommand("/help", "", "show this help", _help),
    SlashCommand("/clear", "", "start a new session", session.clear, waits=True),
    SlashCommand(
        "/compact",
        "[WHAT TO KEEP]",
        "summarize the conversation to free up context",
        session.compact,
        waits=True,
    ),
    SlashCommand(
        "/pin", "[RULE]", "add a rule that every compaction keeps; list the rules", session.pin
    ),
    SlashCommand("/unpin", "N", "remove a rule of the list that /pin shows", session.unpin),
    SlashCommand(
        "/context",
        "[RUN.TURN]",
        "what the model is sent, how large it is, and what a compaction kept",
        info.context,
    ),
    SlashCommand("/cost", "", "token usage, cost, and context saved by children", info.cost),
    SlashCommand("/model", "[NAME]", "switch model (alt+p)", session.model, waits=True),
    SlashCommand("/mode", "[NAME]", "change permission mode (shift+tab)", session.mode, waits=True),
    SlashCommand(
        "/output-style",
        "[NAME]",
        "how the model answers: list the output styles, or use one",
        settings.output_style,
        waits=True,
    ),
    SlashCommand(
        "/permissions",
        "[remove N]",
        "permission mode, rules, and their origin; remove an approved rule",
        settings.permissions,
        waits=True,
    ),
    SlashCommand("/agents", "", "list agents", info.agents),
    SlashCommand("/skills", "", "list skills", info.skills),
    SlashCommand(
        "/mcp",
        "[NAME | restart NAME]",
        "MCP servers and their states; the tools of one; start one again",
        servers.servers,
        waits=True,
    ),
    SlashCommand(
        "/runs", "", "list the runs and background commands of this session (ctrl+t)", info.runs
    ),
    SlashCommand("/team", "", "list the named children and their states", team.team),
    SlashCommand("/approve", "NAME [TEXT]", "approve the plan of a named child", team.approve),
    SlashCommand(
        "/reject", "NAME [TEXT]", "refuse the plan of a named child; it plans again", team.reject
    ),
    SlashCommand(
        "/inbox", "[N, NAME or all]", "messages that their receivers have not read", team.inbox
    ),
    SlashCommand(
        "/tasks",
        "[add SUBJECT | done N]",
        "the task board of the project; add a task, or mark one as done",
        team.tasks,
    ),
    SlashCommand(
        "/resume", "[ID]", "continue another session of this folder", session.resume, waits=True
    ),
    SlashCommand("/rename", "[NAME]", "rename this session", session.rename),
    SlashCommand("/diff", "[N or FILE]", "changes of files: all, prompt N, or FILE", files.diff),
    SlashCommand(
        "/merge",
        "[RUN or NAME]",
        "changes of children with isolated workspaces; merge those that are not merged",
        merge.merge,
    ),
    SlashCommand(
        "/rewind",
        "[N]",
        "remove an earlier prompt and all after it; restore its files",
        files.rewind,
        waits=True,
    ),
    SlashCommand("/undo", "", "remove the last prompt; restore its files", files.undo, waits=True),
    SlashCommand(
        "/export",
        "[FILE]",
        "write the conversation to a file: .md, .html, or plain text",
        session.export,
    ),
    SlashCommand("/copy", "", "copy the last answer to the clipboard", session.copy),
    SlashCommand("/theme", "[NAME]", "colors for a dark or a light terminal", settings.theme),
    SlashCommand("/vim", "", "turn the keys of vi on or off", settings.vim),
    SlashCommand("/view", "", "open the run viewer in a browser", info.view),
    SlashCommand("/doctor", "", "check your setup", info.doctor),
    SlashCommand("/init", "", "create AGENTS.md and a sample agent", info.init),
    SlashCommand("/exit", "", "exit; so do q, exit and Ctrl-D", session.exit_prompt),
)

_ALIASES = {
    "/board": "/tasks",
    "/usage": "/cost",
    "/quit": "/exit",
    "/q": "/exit",
    "/new": "/clear",
}

_BY_NAME = {command.name: command for command in SLASH_COMMANDS}

COMMANDS = {
    **_BY_NAME,
    **{alias: _BY_NAME[name] for alias, name in _ALIASES.items()},
    "?": SlashCommand("?", "", "list the keys", _shortcuts),
}

SHORTCUTS = (
    ("/ command", "@ file or agent"),
    ("! shell", "run a shell command; its output is added to the next prompt"),
    ("esc", "stop and keep partial results; twice: clear the line or rewind"),
    ("enter", "while the model works: queue the line; while only children work: send it"),
    ("ctrl+s", "send the line to the working model now"),
    ("ctrl+t", "steer a child: up, down, enter: transcript, m: message, w: wrap up, x: stop"),
    ("ctrl+x ctrl+k", "stop everything"),
    ("shift+tab, alt+p", "next permission mode; switch model"),
    ("ctrl+b", "send what the model waits for to the background: children, commands"),
    ("ctrl+o", "show the last tool result or thinking in full"),
    ("ctrl+r", "search the history"),
    ("ctrl+v", "insert the image in the clipboard"),
    ("ctrl+g", "edit the line in $EDITOR"),
    ("ctrl+j, alt+enter, \\ enter", "new line"),
    ("ctrl+l", "redraw the screen"),
    ("ctrl+c", "stop, or clear the line; twice: stop background work, or exit"),
)
