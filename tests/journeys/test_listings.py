"""The listing commands at narrow and wide terminals."""

from __future__ import annotations

import pytest

from mudroom._cli.output.text import measure_width

from .conftest import Mudroom


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs",),
        ("models",),
        ("agents",),
        ("agents", "show", "checker"),
        ("agents", "check"),
        ("workspaces",),
        ("board", "list"),
        ("doctor",),
        ("permissions",),
        ("config",),
        ("help",),
        ("help", "board"),
        ("-h",),
    ],
    ids=" ".join,
)
async def test_no_listing_is_wider_than_the_terminal(
    mudroom: Mudroom, arguments: tuple[str, ...]
) -> None:
    _fill_folder(mudroom)
    if arguments == ("runs",):
        prompt = "总结 all files and say where the parser is defined, in one table" * 2
        await mudroom("-p", prompt, "--model", "offline")
    if arguments == ("board", "list"):
        await mudroom("board", "add", "a long subject that says what a worker has to do " * 3)
    is_help = arguments[0] in ("help", "-h")  # The help has lines of at least 50 columns.
    for columns in (80,) if is_help else (40, 200):
        async with mudroom.start_at_terminal(*arguments, columns=columns) as terminal:
            shown = await terminal.read_all()
        wide = [line for line in shown.splitlines() if measure_width(line) > columns]
        # Only a path or an address that must stay whole may be wider; the terminal wraps it.
        assert [line for line in wide if len(line.split()) > 1] == []


def _fill_folder(mudroom: Mudroom) -> None:
    """Write an agent, a skill with a problem, and permission rules."""
    files = {
        ".claude/agents/checker.md": "---\nname: checker\ndescription: Checks one claim of the "
        "README against the files of this project and says which lines prove it\n---\nCheck.\n",
        ".claude/skills/release/SKILL.md": "---\nname: release\ndescription: makes a release of "
        "this project with its notes\nnosuchkey: 1\n---\nRelease it.\n",
        ".claude/settings.json": '{"permissions": {"allow": ["Bash(git status:*)"], "deny": '
        '["Bash(git push --force-with-lease origin main:*)"]}, "hooks": {"PreToolUse": []}}',
    }
    for name, text in files.items():
        path = mudroom.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
