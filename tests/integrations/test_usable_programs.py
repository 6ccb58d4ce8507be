"""Selection of MCP servers and hooks: trust of a folder's programs, precedence, identical hooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mudroom
from mudroom import Integrations
from mudroom._adapters.integrations.program_trust import (
    TRUST_FILE,
    load_trusted_programs,
    trust_programs,
    untrust_programs,
)
from mudroom._adapters.integrations.usable_programs import UsablePrograms, load_usable_programs
from mudroom.errors import UsageError


class Folder:
    """A project with a git root, the user's home folder, and mudroom's state folder."""

    def __init__(self, base: Path) -> None:
        self.state = str(base / "state")
        self.user = base / "user"
        self.project = base / "project"
        (self.project / ".git").mkdir(parents=True)

    def write(self, at: Path, path: str, content: dict[str, Any]) -> None:
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).write_text(json.dumps(content))

    def write_servers(self, at: Path, **commands: str) -> None:
        servers = {name: {"command": command} for name, command in commands.items()}
        self.write(at, ".mcp.json", {"mcpServers": servers})

    def write_hook(self, at: Path, event: str, command: str) -> None:
        groups = [{"hooks": [{"type": "command", "command": command}]}]
        self.write(at, ".claude/settings.json", {"hooks": {event: groups}})

    def load(self, cwd: Path | None = None, *, trusts_all: bool = False) -> UsablePrograms:
        return load_usable_programs(
            str(cwd or self.project),
            home=self.state,
            user_home=str(self.user),
            environ={},
            trusts_all=trusts_all,
        )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def names(programs: UsablePrograms) -> list[str]:
    return [*(s.name for s in programs.servers), *(hook.command for hook in programs.hooks)]


@pytest.mark.parametrize("trusts_all", [True, False])
def test_programs_of_sources_that_are_left_out_are_not_used(
    folder: Folder, trusts_all: bool
) -> None:
    """A server of the project that is left out hides none of the user's with its name."""
    folder.write_servers(folder.project, git="project-server", extra="x")
    folder.write_hook(folder.project, "Stop", "project-hook")
    local = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "local-hook"}]}]}}
    folder.write(folder.project, ".claude/settings.local.json", local)
    folder.write_hook(folder.user, "Stop", "user-hook")
    folder.write(folder.user, ".claude.json", {"mcpServers": {"git": {"command": "own"}}})
    programs = folder.load(trusts_all=trusts_all)
    user = programs.select(reads_project=False, reads_local=False)
    assert [server.command for server in user.servers] == ["own"]
    assert names(user) == ["git", "user-hook"] and user.notices == ()
    project = programs.select(reads_project=True, reads_local=False)
    expected = ["git", "extra", "user-hook", "project-hook"] if trusts_all else names(user)
    assert names(project) == expected
    assert names(programs.select(reads_project=True, reads_local=True)) == names(programs)


def test_programs_of_a_folder_are_used_only_after_trust_and_those_of_the_user_always(
    folder: Folder,
) -> None:
    folder.write_servers(folder.project, git="git-server")
    folder.write_hook(folder.project, "Stop", "project-hook")
    folder.write_hook(folder.user, "Stop", "user-hook")
    folder.write(folder.user, ".claude.json", {"mcpServers": {"own": {"command": "x"}}})
    before = folder.load()
    assert names(before) == ["own", "user-hook"]
    assert before.notices == (
        "not used: 1 MCP server and 1 hook of this folder, which are not trusted."
        " See them: mudroom trust. Use them: mudroom trust add, or --trust for one run.",
    )
    everything = ["git", "own", "user-hook", "project-hook"]
    assert names(before.trust_all()) == names(folder.load(trusts_all=True)) == everything
    assert names(folder.load()) == ["own", "user-hook"]
    before.remember_trust(folder.state)
    assert len(before.programs_of_folder) == 2
    after = folder.load()
    assert names(after) == everything and after.notices == ()
    assert Path(folder.state, TRUST_FILE).stat().st_mode & 0o777 == 0o600
    assert untrust_programs(folder.state, str(folder.project))
    assert not untrust_programs(folder.state, str(folder.project))
    assert names(folder.load()) == ["own", "user-hook"]


@pytest.mark.parametrize("change", ["command", "more", "fewer", "hook"])
def test_a_changed_set_of_programs_is_asked_about_again(folder: Folder, change: str) -> None:
    folder.write_servers(folder.project, a="a", b="b")
    folder.load().remember_trust(folder.state)
    assert names(folder.load()) == ["a", "b"]
    if change == "command":
        folder.write_servers(folder.project, a="a", b="b2")
    elif change == "more":
        folder.write_servers(folder.project, a="a", b="b", c="c")
    elif change == "fewer":
        folder.write_servers(folder.project, a="a")
    else:
        folder.write_hook(folder.project, "PreToolUse", "new")
    assert names(folder.load()) == []
    assert folder.load().untrusted
    folder.write(folder.project, ".claude/settings.json", {})
    folder.write_servers(folder.project, b="b", a="a")
    assert names(folder.load()) == ["b", "a"]


def test_hooks_that_never_run_need_no_trust(folder: Folder) -> None:
    folder.write_hook(folder.project, "FileChanged", "never")
    programs = folder.load()
    assert programs.untrusted == () and programs.notices == () and programs.hooks == ()
    assert programs.listed_hooks[0].reason == "the event never happens here"


def test_each_folder_of_a_project_has_its_own_answer(folder: Folder) -> None:
    sub = folder.project / "sub"
    folder.write_servers(folder.project, root="r")
    folder.write_servers(sub, sub="s")
    folder.load().remember_trust(folder.state)
    assert names(folder.load()) == ["root"]
    assert names(folder.load(sub)) == ["root"]
    folder.load(sub).remember_trust(folder.state)
    assert names(folder.load(sub)) == ["sub", "root"]
    assert set(load_trusted_programs(folder.state)) == {str(folder.project), str(sub)}


def test_an_untrusted_server_does_not_replace_one_of_the_user(folder: Folder) -> None:
    folder.write(folder.user, ".claude.json", {"mcpServers": {"git": {"command": "mine"}}})
    folder.write_servers(folder.project, git="theirs")
    assert [server.command for server in folder.load().servers] == ["mine"]
    trusted = folder.load(trusts_all=True)
    assert [server.command for server in trusted.servers] == ["theirs"]
    assert "takes precedence" in trusted.listed_servers[1].reason
    assert str(folder.project) in trusted.listed_servers[1].reason


def test_identical_hooks_are_used_once(folder: Folder) -> None:
    folder.write_hook(folder.user, "Stop", "same")
    folder.write_hook(folder.project, "Stop", "same")
    programs = folder.load(trusts_all=True)
    assert names(programs) == ["same"]
    assert [bool(item.reason) for item in programs.listed_hooks] == [False, True]
    folder.write_hook(folder.project, "SessionEnd", "same")
    assert names(folder.load(trusts_all=True)) == ["same", "same"]


def test_problems_of_files_are_one_line(folder: Folder) -> None:
    folder.write(folder.project, ".mcp.json", {"mcpServers": {"a": {}, "b": {}, "c": 1}})
    (notice,) = folder.load().notices
    assert "server a is not used: it has neither a command nor a url" in notice
    assert notice.endswith("(2 more problems: mudroom doctor)")


def test_a_broken_list_of_trusted_programs_trusts_none(folder: Folder) -> None:
    folder.write_servers(folder.project, a="a")
    Path(folder.state).mkdir()
    Path(folder.state, TRUST_FILE).write_text("{")
    with pytest.raises(UsageError, match="the list of trusted programs cannot be read"):
        folder.load()
    with pytest.raises(UsageError):
        trust_programs(folder.state, "/x", ["1"])


def test_a_program_loads_them_for_a_session_and_nothing_is_read_otherwise(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(folder.user, ".claude.json", {"mcpServers": {"own": {"command": "x"}}})
    folder.write(folder.project, ".mcp.json", {"mcpServers": {"a": {"command": "${MARK}"}}})
    folder.write_hook(folder.project, "Stop", "hook")
    monkeypatch.setenv("MARK", "from the process")
    monkeypatch.setenv("HOME", str(folder.user))
    cwd = str(folder.project)
    assert names(mudroom.load_usable_programs(cwd)) == []
    programs = mudroom.load_usable_programs(cwd, trusts_all=True)
    assert [server.command for server in programs.servers] == ["from the process"]
    options = mudroom.SessionOptions(
        integrations=Integrations(mcp_servers=programs.servers, hook_programs=programs.hooks)
    )
    assert [hook.command for hook in options.integrations.hook_programs] == ["hook"]
    plain = mudroom.SessionOptions(cwd=cwd)
    assert not plain.integrations.mcp_servers and not plain.integrations.hook_programs
