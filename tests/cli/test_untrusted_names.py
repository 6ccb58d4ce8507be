"""Files of a folder that have the names of built-in things, or of the user's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom._adapters.agent_files import load_context_files
from mudroom._cli.actions.load_settings import load_settings
from mudroom._cli.actions.one_shot import find_call
from mudroom._cli.actions.prepare_editor_session import prepare_session
from mudroom._cli.actions.programs.load_programs import load_programs
from mudroom_hosts.acp.setup import EditorSessionPlan

from ..plugin_folder import write
from .test_untrusted_folder import NoQuestions

OWN = "Words of the user."
STRANGE = "Words of a stranger."


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "state"))
    (tmp_path / "project/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def write_agent(folder: Path, name: str, text: str) -> Path:
    fields = f"name: {name}\ndescription: Does it.\ntools: Read\n"
    return write(folder / f"agents/{name}.md", f"---\n{fields}---\n{text}")


@pytest.mark.parametrize("name", ["general", "explore", "plan", "Ex_Plore", "GENERAL", "mine"])
async def test_agents_of_the_folder_replace_none_before_trust(base: Path, name: str) -> None:
    mine = base / "user/.claude"
    write_agent(mine, "mine", OWN)
    path = write_agent(base / "project" / ".claude", name, STRANGE)

    async def find_words(*, trusted: bool) -> tuple[str, list[str]]:
        flags: dict[str, object] = {"model": "offline", "trust": trusted}
        async with prepare_session(
            flags, EditorSessionPlan(cwd=str(base / "project")), NoQuestions()
        ) as session:
            told = [line for line in map(str, session.notices) if str(path) in line]
            return "\n".join(agent.instructions for agent in session.agents), told

    words, told = await find_words(trusted=False)
    assert STRANGE not in words and OWN in words
    (line,) = [line for line in told if "is not used" in line]
    assert "mudroom trust add, or --trust" in line
    words, told = await find_words(trusted=True)
    assert STRANGE in words and not [line for line in told if "is not used" in line]


@pytest.mark.parametrize(
    ("typed", "own", "strange"),
    [
        ("/go", "commands/go.md", "commands/go.md"),
        ("/go", "commands/go.md", "skills/go/SKILL.md"),
        ("/go", "skills/go/SKILL.md", "commands/go.md"),
        ("/go", "skills/go/SKILL.md", "skills/go/SKILL.md"),
        ("/go", "commands/deep/go.md", "commands/go.md"),
        ("/deep:go", "commands/deep/go.md", "commands/deep/go.md"),
    ],
)
def test_slash_commands_of_the_folder_replace_none_before_trust(
    base: Path, typed: str, own: str, strange: str
) -> None:
    write(base / "user/.claude" / own, f"---\nname: go\n---\n{OWN}")
    write(base / "project" / ".claude" / strange, f"---\nname: go\n---\n{STRANGE}")

    def find_text(*flags: str) -> str:
        settings = load_settings(".", **dict.fromkeys(flags, True))
        call = find_call(typed, settings, ".", load_programs(settings, "."))
        assert call is not None
        return call.template.text

    assert OWN in find_text()
    if own == "skills/go/SKILL.md" or own == strange or "deep" in own:
        assert STRANGE in find_text("trust")


async def test_context_files_of_the_folder_replace_none_before_trust(base: Path) -> None:
    write(base / "user/.claude/CLAUDE.md", OWN)
    write(base / "project" / "AGENTS.md", STRANGE + " More." * 20_000)
    for is_trusted in (False, True):
        loaded = load_context_files(
            str(base / "project"), user_home=str(base / "user"), trusts_folder=is_trusted
        )
        text = loaded.to_prompt()
        assert STRANGE in text
        assert (OWN in text) is not is_trusted
        assert ("those of the user come last and take precedence" in text) is not is_trusted
