"""Commands and flags of other programs, with the nearest thing that mudroom has."""

from __future__ import annotations

_COMMANDS = {
    "login logout auth connect setup-token": "Keys are environment variables: see mudroom models.",
    "update upgrade install": "Update mudroom with the program that installed it, such as pipx.",
    "exec ask query": 'Use mudroom -p "PROMPT".',
    "sessions history": "Use mudroom runs.",
    "chat": "mudroom alone opens the interactive prompt.",
    "skills": "Start mudroom and type /skills.",
    "stats usage": "mudroom runs lists tokens; /cost at the prompt shows costs.",
    "vis ui web": "Use mudroom view.",
}
_COMMANDS_BY_NAME = {name: text for names, text in _COMMANDS.items() for name in names.split()}
# Some of these are mudroom's own flags in a session that an agent SDK starts.
_FLAGS = {
    "--yolo": "--dangerously-skip-permissions",
    "--full-auto": "--permission-mode acceptEdits",
    "--system-prompt": "--agent",
    "--append-system-prompt": "--agent",
}


def describe_nearest_command(name: str) -> str:
    """Return what to use instead of another program's command, "" for an unknown name."""
    return _COMMANDS_BY_NAME.get(name, "")


def find_nearest_flag(name: str) -> str:
    """Return mudroom's flag for one of another program, "" for an unknown one."""
    return _FLAGS.get(name, "")
