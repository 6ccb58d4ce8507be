"""Trusted folders, and settings files: a project can only add restrictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mudroom import Integrations, Session
from mudroom._adapters.agent_files.locations import find_places
from mudroom._core.agents import Mode
from mudroom._session.config import load_settings as settings_of
from mudroom.errors import UsageError
from mudroom.permissions import rules, trust


def test_a_folder_and_all_below_it_are_trusted(tmp_path: Path) -> None:
    home, project = str(tmp_path / "h"), tmp_path / "p" / "sub"
    project.mkdir(parents=True)
    (tmp_path / "p-secret").mkdir()
    assert not trust.is_trusted(home, str(project))
    assert trust.trust_folder(home, str(tmp_path / "p")) == str(tmp_path / "p")
    assert trust.is_trusted(home, str(project)) and not trust.is_trusted(
        home, str(tmp_path / "p-secret")
    )
    assert Path(home, trust.TRUST_FILE).stat().st_mode & 0o777 == 0o600
    assert Path(home).stat().st_mode & 0o777 == 0o700
    assert trust.untrust_folder(home, str(tmp_path / "p")) and not trust.is_trusted(
        home, str(project)
    )
    assert not trust.untrust_folder(home, str(project))


def test_a_link_in_a_trusted_folder_is_judged_by_its_target(tmp_path: Path) -> None:
    home = str(tmp_path / "h")
    (tmp_path / "good").mkdir()
    (tmp_path / "evil").mkdir()
    (tmp_path / "good" / "link").symlink_to(tmp_path / "evil")
    trust.trust_folder(home, str(tmp_path / "good"))
    assert not trust.is_trusted(home, str(tmp_path / "good" / "link"))


def test_the_root_and_the_home_folder_cannot_be_trusted(tmp_path: Path) -> None:
    for folder in ("/", str(Path.home()), str(tmp_path / "missing")):
        with pytest.raises(UsageError):
            trust.trust_folder(str(tmp_path / "h"), folder)


def test_a_broken_trust_file_trusts_no_folder(tmp_path: Path) -> None:
    (tmp_path / trust.TRUST_FILE).write_text("{")
    with pytest.raises(UsageError, match="trusted"):
        trust.is_trusted(str(tmp_path), str(tmp_path))


def write(path: Path, **permissions: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"permissions": permissions}, indent=1))


def test_the_users_settings_apply_in_full_a_projects_only_narrow(tmp_path: Path) -> None:
    user_home, project = tmp_path / "user", tmp_path / "project"
    write(
        user_home / ".claude/settings.json",
        allow=["Bash(npm test)"],
        deny=["Read(.env)"],
        defaultMode="acceptEdits",
    )
    write(
        project / ".claude/settings.json",
        allow=["Bash"],
        deny=["Bash(curl:*)"],
        ask=["Edit"],
        defaultMode="bypassPermissions",
    )
    write(project / ".claude/settings.local.json", allow=["Bash(make)"])
    loaded = rules.load_permission_files(str(project), user_home=str(user_home))
    assert [(rule.verdict, rule.tool, rule.pattern) for rule in loaded.rules] == [
        ("deny", "read", ".env"),
        ("allow", "bash", "npm test"),
        ("deny", "bash", "curl:*"),
        ("ask", "edit", ""),
    ]
    assert loaded.mode is Mode.ACCEPT_EDITS
    assert sum("a project can only add restrictions" in note for note in loaded.notices) == 2
    assert any(
        "may not set the permission mode bypassPermissions" in note for note in loaded.notices
    )
    assert loaded.rules[2].origin == f"{project}/.claude/settings.json:7"


def test_settings_of_places_that_are_left_out_are_not_read(tmp_path: Path) -> None:
    user_home, project = tmp_path / "user", tmp_path / "project"
    write(user_home / ".claude/settings.json", deny=["Read(user)"])
    write(project / ".claude/settings.json", deny=["Read(project)"])
    write(project / ".claude/settings.local.json", deny=["Read(local)"])

    def read(sources: bool | tuple[str, ...]) -> list[str]:
        folder, home, reads_local = find_places(sources, str(project), str(user_home))
        loaded = rules.load_permission_files(folder, user_home=home, reads_local=reads_local)
        return [rule.pattern for rule in loaded.rules]

    assert read(True) == ["user", "project", "local"]
    assert read(("project", "user")) == ["user", "project"]
    assert read(("user", "local")) == ["user"]
    assert read(("project", "local")) == ["project", "local"]
    assert read(()) == read(False) == []


def test_a_project_may_narrow_the_mode(tmp_path: Path) -> None:
    write(tmp_path / ".claude/settings.json", defaultMode="plan")
    assert rules.load_permission_files(str(tmp_path), user_home="").mode is Mode.PLAN


def test_a_file_cannot_enable_bypass_but_can_forbid_it(tmp_path: Path) -> None:
    write(
        tmp_path / ".claude/settings.json",
        defaultMode="bypassPermissions",
        disableBypassPermissionsMode="disable",
    )
    loaded = rules.load_permission_files(str(tmp_path), user_home=str(tmp_path))
    assert loaded.mode is Mode.ACCEPT_EDITS and loaded.forbids_bypass and loaded.notices


def test_project_settings_are_found_up_to_the_repository(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "a" / "b").mkdir(parents=True)
    write(tmp_path / "repo" / ".claude/settings.json", deny=["Bash(curl:*)"])
    write(tmp_path / ".claude/settings.json", deny=["Bash(wget:*)"])
    loaded = rules.load_permission_files(str(tmp_path / "repo" / "a" / "b"), user_home="")
    assert [rule.pattern for rule in loaded.rules] == ["curl:*"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"permissions": []}',
        '{"permissions": {"allow": "x"}}',
        '{"permissions": {"deny": ["Bash("]}}',
        "\xff",
    ],
)
def test_a_broken_settings_file_is_reported_and_skipped(tmp_path: Path, text: str) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(text, encoding="latin-1")
    loaded = rules.load_permission_files(str(tmp_path), user_home="")
    assert not loaded.rules and loaded.notices and str(tmp_path) in loaded.notices[0]


@pytest.mark.parametrize(
    "line",
    [
        'sandbox = "off"',
        "allow_net = true",
        'home = "/tmp/x"',
        'model = "x"',
        'permission_mode = "bypassPermissions"',
        'allowed_tools = "Bash"',
        "trust = true",
    ],
)
def test_63_project_off(tmp_path: Path, line: str) -> None:
    (tmp_path / ".mudroom.toml").write_text(line + "\n")
    with pytest.raises(UsageError, match="a project file may not set"):
        settings_of(cwd=str(tmp_path), environ={"HOME": str(tmp_path / "user")}, flags={})


AGENT = """\
---
name: helper
description: helps
tools: Bash, Write
---
Help.
"""


@pytest.mark.parametrize("trusted", [True, False])
async def test_agents_of_a_folder_only_read_until_it_is_trusted(
    tmp_path: Path, trusted: bool
) -> None:
    (tmp_path / ".claude" / "agents").mkdir(parents=True)
    (tmp_path / ".claude" / "agents" / "helper.md").write_text(AGENT)
    given: dict[str, Any] = {
        "environ": {"HOME": str(tmp_path / "user")},
        "integrations": Integrations(agent_files=True, trusted=trusted),
        "sandbox": "off",
        "journal": "memory",
    }
    async with Session(
        model="offline", cwd=str(tmp_path), home=str(tmp_path / "h"), **given
    ) as session:
        helper = next(agent for agent in session.agents if agent.name == "helper")
    assert helper.mode is (None if trusted else Mode.PLAN)
    hint = "they only read until you trust this folder (mudroom trust add, or --trust)"
    assert (hint in " ".join(map(str, session.notices))) is not trusted
