"""Frontmatter as people and editors write it: used, or a line says why not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom._adapters.agent_files import load_agent_files
from mudroom._adapters.agent_files.commands import check_commands, load_commands
from mudroom._adapters.agent_files.frontmatter import parse_document
from mudroom._adapters.agent_files.output_styles import load_output_styles
from mudroom._adapters.agent_files.safe_read import Diagnostic, FileDiagnostics, Severity
from mudroom._adapters.agent_files.skills import load_skills

TEXT = "---\nname: zed\ndescription: Finds names.\n---\nDo it.\n"

USED = {
    "plain": TEXT,
    "blank first line": f"\n{TEXT}",
    "blank lines with spaces": f" \n\t\n\n{TEXT}",
    "byte order mark": f"\ufeff{TEXT}",
    "byte order mark and a blank line": f"\ufeff\n{TEXT}",
    "CRLF": TEXT.replace("\n", "\r\n"),
    "CR": TEXT.replace("\n", "\r"),
    "spaces after the fences": TEXT.replace("---", "---  "),
    "tabs after the fences": TEXT.replace("---", "---\t"),
    "indented fences": TEXT.replace("---", "  ---"),
    "HTML comment above": f"<!-- licence: MIT -->\n{TEXT}",
    "long HTML comment above": f"<!--\nlicence\n---\nMIT\n-->\n\n{TEXT}",
    "comment above": f"# written by hand\n{TEXT}",
    "comment inside": TEXT.replace("name:", "# the name\nname:"),
    "blank line inside": TEXT.replace("name:", "\nname:"),
    "spaces before the colon": TEXT.replace("name:", "name :"),
}
UNUSED = {
    "no closing fence": ("---\nname: zed\ndescription: Finds names.\nDo it.\n", 1),
    "no opening fence": ("name: zed\ndescription: Finds names.\n---\nDo it.\n", 1),
    "no fences": ("\nname: zed\ndescription: Finds names.\n\nDo it.\n", 2),
    "other text above": (f"# Zed\n\nWrites.\n\n{TEXT}", 5),
    "too many dashes": (TEXT.replace("---", "-----"), 1),
    "typographic dashes": (TEXT.replace("---", "—"), 1),
    "plus signs": (TEXT.replace("---", "+++"), 1),
    "code fence": (TEXT.replace("---", "```"), 1),
    "tab in YAML": (TEXT.replace("name:", "\tname:"), 2),
    "a list": ("---\n- zed\n---\nDo it.\n", 2),
}
FILES = {
    "agent": ".claude/agents/zed.md",
    "skill": ".claude/skills/zed/SKILL.md",
    "command": ".claude/commands/zed.md",
    "output style": ".claude/output-styles/zed.md",
}
PROSE = [
    "# Agents\n\nThese are ours.\n\n---\n\nSee above.\n",
    "\n\n---\n\n# Title\n\ntext\n",
    "Write:\n\n```\n---\nname: zed\n---\n```\n",
    "",
    "\n\n",
]


def load(kind: str, tmp_path: Path) -> tuple[str, list[Diagnostic]]:
    """Return the description that was read, and the diagnostics above a note."""
    folder, home = str(tmp_path), str(tmp_path / "none")
    if kind == "agent":
        agents = load_agent_files(folder, user_home=home, tools=[])
        found = [agent.description for agent in agents.agents]
        diagnostics = [*agents.diagnostics]
    elif kind == "skill":
        skills = load_skills(folder, user_home=home)
        found = [skill.description for skill in skills.by_name.values()]
        diagnostics = [*skills.diagnostics]
    elif kind == "command":
        commands = load_commands(folder, user_home=home)
        found = [command.description for command in commands.values()]
        diagnostics = check_commands(folder, user_home=home)
    else:
        styles = load_output_styles(folder, user_home=home)
        found = [style.description for style in styles.by_name.values()]
        diagnostics = [*styles.diagnostics]
    shown = [each for each in diagnostics if each.severity is not Severity.NOTE]
    return "".join(found), shown


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    (tmp_path / ".git").mkdir()

    def write(kind: str, text: str) -> Path:
        path = tmp_path / FILES[kind]
        path.parent.mkdir(parents=True)
        path.write_bytes(text.encode())
        return path

    return write


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("form", USED)
def test_a_form_that_is_clear_is_used(
    tmp_path: Path, write: Callable[[str, str], Path], kind: str, form: str
) -> None:
    write(kind, USED[form])
    assert load(kind, tmp_path) == ("Finds names.", [])


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("form", UNUSED)
def test_keys_that_are_not_used_are_told_with_their_line(
    tmp_path: Path, write: Callable[[str, str], Path], kind: str, form: str
) -> None:
    text, line = UNUSED[form]
    path = write(kind, text)
    description, told = load(kind, tmp_path)
    assert description != "Finds names."
    assert (str(path), line) in [(each.path, each.line) for each in told], told


@pytest.mark.parametrize("text", PROSE)
def test_documentation_beside_agents_is_no_warning(
    tmp_path: Path, write: Callable[[str, str], Path], text: str
) -> None:
    write("agent", text)
    assert load("agent", tmp_path) == ("", [])


@pytest.mark.parametrize("line", ["---", "<!--", "#", " ", "```", "name", "-->"])
def test_reading_takes_time_in_proportion_to_the_text(line: str) -> None:
    text = f"first\n{line}\n" * 100_000
    started = time.process_time()
    for each in (text, text.removeprefix("first\n")):
        parse_document(each, FileDiagnostics("zed.md"))
    assert time.process_time() - started < 3
