"""Permission rules: their syntax, the calls they match, and which one decides."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom._core.agents import Mode
from mudroom._core.tools import Effect, Tool, ToolCategory
from mudroom.errors import UsageError
from mudroom.permissions.rules import Permissions, Verdict, matches_pattern, parse_rule, split_rules
from mudroom.tools import builtin_tools

from .conftest import Court


@pytest.mark.parametrize(
    ("spec", "text", "fit"),
    [
        ("ls", "ls", True),
        ("ls", "ls -la", False),
        ("ls *", "ls -la", True),
        ("ls *", "ls", True),
        ("ls *", "lsof", False),
        ("ls*", "lsof", True),
        ("ls:*", "ls -la", True),
        ("ls:*", "ls", True),
        ("ls:*", "lsof", False),
        ("git * main", "git push origin main", True),
        ("git * main", "git push", False),
        ("* --version", "node --version", True),
        ("npm run test:*", "npm run test", True),
        ("npm run test:*", "npm run test --watch", True),
        ("npm run test:*", "npm run tests", False),
        ("a.c", "abc", False),
        ("git diff:*", "git diff --stat", True),
        ("git diff:*", "git difftool", False),
    ],
)
def test_patterns_of_commands(spec: str, text: str, fit: bool) -> None:
    assert matches_pattern(spec, text) is fit


@pytest.mark.parametrize(
    ("text", "tool", "spec"),
    [
        ("Bash", "bash", ""),
        ("Bash(*)", "bash", ""),
        ("Bash(git diff:*)", "bash", "git diff:*"),
        ("run_shell_command(ls)", "bash", "ls"),
        ("Read(./.env)", "read", "./.env"),
        ("Agent(explore)", "task", "explore"),
        ("Task", "task", ""),
        ("mcp__a__*", "mcp__a__*", ""),
        ("WebFetch(domain:x.com)", "web_fetch", "domain:x.com"),
        ("MultiEdit", "edit", ""),
        ("Bash(echo (a))", "bash", "echo (a)"),
    ],
)
def test_rules_accept_the_tool_names_of_other_programs(text: str, tool: str, spec: str) -> None:
    rule = parse_rule(text, Verdict.ALLOW)
    assert (rule.tool, rule.pattern) == (tool, spec)


@pytest.mark.parametrize("text", ["", "Bash(", "(ls)", "Bash(git:* push)", "1x", "Bash)"])
def test_an_invalid_rule_is_an_error_with_its_origin(text: str) -> None:
    with pytest.raises(UsageError, match="settings"):
        parse_rule(text, Verdict.DENY, origin="settings.json:3")


def test_a_flag_can_hold_several_rules() -> None:
    assert split_rules(["Bash(git diff:*),Edit Read(a, b)", "Write"]) == [
        "Bash(git diff:*)",
        "Edit",
        "Read(a, b)",
        "Write",
    ]


@given(st.text(max_size=60))
def test_any_text_is_parsed_to_the_same_rule_or_refused(text: str) -> None:
    try:
        rule = parse_rule(text, Verdict.ASK)
    except UsageError:
        return
    written = f"{rule.tool}({rule.pattern})" if rule.pattern else rule.tool
    assert parse_rule(written, Verdict.ASK) == rule


def test_deny_wins_over_ask_and_ask_over_allow(court: Court) -> None:
    assert (
        court.bash("make x", allow=["Bash(make x)"], ask=["Bash(make:*)"], deny=["Bash"]) == "deny"
    )
    assert court.bash("make x", allow=["Bash(make x)"], ask=["Bash(make:*)"]) == "ask"
    assert court.bash("make x", allow=["Bash(make x)"]) == "allow"


def test_every_part_is_judged_by_itself(court: Court) -> None:
    assert court.bash("make a && npm test", allow=["Bash(make:*)"]) == "ask"
    assert court.bash("make a && npm test", allow=["Bash(make:*)", "Bash(npm test)"]) == "allow"
    decision = court("bash", command="make a && npm test", allow=["Bash(make:*)"])
    assert decision.command_part == "npm test" and decision.why == "no rule allows it"


def test_harmless_wrappers_do_not_change_the_verdict(court: Court) -> None:
    for wrapper in (
        "timeout 5",
        "time",
        "nice -n 5",
        "nohup",
        "stdbuf -oL",
        "command",
        "timeout -k 1 5 nice",
        "xargs",
        "xargs -n 1",
    ):
        assert court.bash(f"{wrapper} npm test", allow=["Bash(npm test:*)"]) == "allow", wrapper
        assert court.bash(f"{wrapper} make", allow=["Bash(npm test:*)"]) == "ask", wrapper


def test_only_safe_variables_may_stand_before_an_allowed_command(court: Court) -> None:
    assert court.bash("NODE_ENV=test LC_ALL=C npm test", allow=["Bash(npm test)"]) == "allow"
    assert court.bash("PATH=. npm test", allow=["Bash(npm test)"]) == "ask"
    assert court.bash("PATH=. npm test", allow=["Bash(PATH=. npm test)"]) == "allow"


READS = [
    "ls -la src",
    "cat src/a.py | head -3",
    "git status",
    "git log --oneline -5",
    "git diff HEAD~1 -- src",
    "git show HEAD:src/a.py",
    "grep -rn x src",
    "rg x",
    "find . -name '*.py'",
    "wc -l src/*.py",
    "sed -n '1,5p' src/a.py",
    "cd src && ls",
    "[ -f src/a.py ] && cat src/a.py",
    "for f in src/*.py; do echo $f; done | sort",
    "ls 2>/dev/null",
    "echo $HOME",
    "python3 --version",
    "git branch --show-current",
    "x=1; echo $x",
    "bash -c 'ls src'",
    "diff <(ls src) <(ls .)",
    "if test -d src; then ls src; fi",
    "head -5 < src/a.py",
    "cat <<E\nhello\nE",
    "command -v git",
    "true",
    "",
]


@pytest.mark.parametrize("command", READS)
def test_reading_commands_are_allowed(court: Court, command: str) -> None:
    for mode in ("default", "plan", "dontAsk"):
        assert court.bash(command, mode=mode) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/passwd",
        "cat ~/.ssh/id_rsa",
        "cat ../x",
        "cat $x",
        "cd && cat x",
        "cd .. && ls",
        "ls link",
        "cat src/../../x",
        "grep x --file=/etc/x",
    ],
)
def test_reading_outside_the_workspace_is_asked(court: Court, command: str) -> None:
    (court.root / "link").symlink_to("/etc")
    assert court.bash(command) == "ask"


MODES: dict[str, dict[str, str]] = {
    "plan": {
        "read": "allow",
        "edit": "deny",
        "bash": "deny",
        "ruled": "deny",
        "asked": "deny",
        "mcp": "deny",
    },
    "dontAsk": {
        "read": "allow",
        "edit": "deny",
        "bash": "deny",
        "ruled": "allow",
        "asked": "deny",
        "mcp": "deny",
    },
    "default": {
        "read": "allow",
        "edit": "ask",
        "bash": "ask",
        "ruled": "allow",
        "asked": "ask",
        "mcp": "ask",
    },
    "acceptEdits": {
        "read": "allow",
        "edit": "allow",
        "bash": "allow",
        "ruled": "allow",
        "asked": "ask",
        "mcp": "ask",
    },
    "bypassPermissions": {
        "read": "allow",
        "edit": "allow",
        "bash": "allow",
        "ruled": "allow",
        "asked": "allow",
        "mcp": "allow",
    },
}


@pytest.mark.parametrize("mode", MODES)
def test_modes(court: Court, mode: str) -> None:
    rules: dict[str, Any] = {
        "allow": ["Bash(npm test)"],
        "ask": ["Bash(make:*)"],
        "mode": mode,
        "tier": "full",
    }
    found = {
        "read": court("read", file_path="src/a.py", **rules).verdict,
        "edit": court("edit", file_path="src/a.py", **rules).verdict,
        "bash": court.bash("cargo build", **rules),
        "ruled": court.bash("npm test", **rules),
        "asked": court.bash("make", **rules),
        "mcp": _outside(court, mode),
    }
    assert found == MODES[mode]
    assert court.bash("rm x", deny=["Bash(rm:*)"], mode=mode) == "deny"


def _outside(court: Court, mode: str) -> str:
    from mudroom.permissions.policy import RulePolicy

    async def run(context: Any, arguments: Any) -> Any:
        raise AssertionError

    tool = Tool(
        name="mcp__a__b",
        description="",
        parameters={},
        parse=dict,
        run=run,
        effect=Effect.EFFECTFUL,
    )
    policy = RulePolicy(
        Permissions(can_ask=True),
        workspace=str(court.root),
        user_home="/",
        tools=builtin_tools(),
        tier=lambda: "full",
    )
    return policy.decide(tool, {}, Mode(mode)).verdict


def test_accept_edits_allows_commands_only_in_a_sandbox(court: Court) -> None:
    for tier, verdict in (("full", "allow"), ("file", "allow"), ("off", "ask"), ("ask", "ask")):
        assert court.bash("cargo build", mode="acceptEdits", tier=tier) == verdict


def test_an_edit_outside_the_workspace_is_asked(court: Court) -> None:
    assert court("write", file_path="/etc/x", mode="acceptEdits").verdict == "ask"


def test_unattended_without_rules_everything_is_allowed(court: Court) -> None:
    assert court.bash("cargo build", can_ask=False) == "allow"
    assert court("write", file_path="a", can_ask=False).verdict == "allow"
    assert court.bash("if", can_ask=False) == "allow"


def test_unattended_deny_and_ask_rules_apply_and_doubts_are_asked(court: Court) -> None:
    assert court.bash("git push", can_ask=False, deny=["Bash(git push:*)"]) == "deny"
    assert court.bash("git ${x@P}", can_ask=False, deny=["Bash(git push:*)"]) == "ask"
    assert court.bash("cargo build", can_ask=False, deny=["Bash(git push:*)"]) == "allow"


def test_unattended_allow_rules_exclude_everything_but_reading(court: Court) -> None:
    only: dict[str, Any] = {"can_ask": False, "allow": ["Bash(npm test:*)"]}
    assert court.bash("npm test", **only) == "allow"
    assert court.bash("cargo build", **only) == "ask"
    assert court("write", file_path="a", **only).verdict == "ask"
    assert court.bash("ls src", **only) == "allow"
    assert court("read", file_path="src/a.py", **only).verdict == "allow"


@pytest.mark.parametrize(
    ("spec", "path", "fit"),
    [
        (".env", ".env", True),
        (".env", "src/.env", True),
        ("./.env", "src/.env", False),
        ("src/**", "src/a.py", True),
        ("src", "src/a.py", True),
        ("*.py", "src/a.py", True),
        ("/src/*.py", "src/a.py", True),
        ("src/", "src/a.py", True),
        ("~/.ssh/**", "{home}/.ssh/id", True),
        ("//etc/**", "/etc/passwd", True),
        ("//{root}/src/**", "src/a.py", True),
        ("/etc/passwd", "/etc/passwd", False),
        ("src/*.js", "src/a.py", False),
        (".env", "src/../.env", True),
        (".env", "{root}/.env", True),
        ("../other/**", "{base}/other/x", True),
        ("proj", "{base}/project-secret/x", False),
    ],
)
def test_patterns_of_paths(court: Court, spec: str, path: str, fit: bool) -> None:
    names = {"root": str(court.root), "home": str(court.home), "base": str(court.root.parent)}
    rule, path = spec.format(**names).replace("///", "//"), path.format(**names)
    assert court("read", file_path=path, deny=[f"Read({rule})"]).verdict == (
        "deny" if fit else "allow"
    )


def test_a_link_is_denied_by_its_target_and_allowed_by_name_and_target(court: Court) -> None:
    (court.root / "link").symlink_to(court.root / ".env")
    assert court("read", file_path="link", deny=["Read(.env)"]).verdict == "deny"
    assert court("edit", file_path="link", allow=["Edit(link)"]).verdict == "ask"
    assert court("edit", file_path="link", allow=["Edit(link)", "Edit(.env)"]).verdict == "ask"
    assert court("edit", file_path="src/a.py", allow=["Edit(src/**)"]).verdict == "allow"


def test_a_link_whose_name_is_not_utf8_is_denied_by_its_target(court: Court) -> None:
    os.symlink(os.fsencode(court.root / ".env"), os.fsencode(court.root) + b"/\xe9")
    assert court("write", file_path=r"\xe9", content="", deny=["Edit(.env)"]).verdict == "deny"


def test_file_rules_apply_to_all_file_tools_and_to_commands(court: Court) -> None:
    deny: dict[str, Any] = {"deny": ["Read(.env)", "Edit(src/**)"]}
    assert court("grep", pattern="x", path=".env", **deny).verdict == "deny"
    assert court("write", file_path="src/new.py", content="", **deny).verdict == "deny"
    for command in (
        "cat .env",
        "cat ./.env",
        "head < .env",
        "cat .e*",
        "cat '.env'",
        "cp .env x",
        "dd if=.env",
        "echo x > src/a.py",
        "touch src/a.py",
    ):
        assert court.bash(command, **deny) == "deny", command
    assert court.bash("cat src/a.py", **deny) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "cd src && cat ../.env",
        "cd src; cat key",
        "(cd src; cat key)",
        "pushd src; cat key",
        "bash -c 'cd src; cat key'",
        "cd src && cat k*",
        "env -C src cat key",
        "git -C src diff --no-index /dev/null key",
        "cat {root}/.env",
        "cat //{root}/.env",
        "cat /proc/self/cwd/.env",
        "cat /proc/1/root{root}/.env",
        "cat .ENV",
        "cat .E\uff2e\uff36",
        'cat "$PWD/.env"',
        "cat ${PWD}/.env",
        "cat ~+/.env",
        "cat {a,.env}",
        "cat .e{nv,xx}",
        "cat folder/a",
        "cat FOLDER/a",
        "cat ~/x",
        "cat $HOME/x",
        "cat {home}/x",
    ],
)
def test_a_denied_file_is_denied_by_every_spelling(court: Court, command: str) -> None:
    (court.root / "src" / "key").write_text("k")
    (court.root / "secrets").mkdir()
    (court.root / "folder").symlink_to("secrets")
    command = command.replace("{root}", str(court.root)).replace("{home}", str(court.home))
    deny = ["Read(.env)", "Read(src/key)", "Read(secrets/**)", "Read(folder/a)", "Read(~/x)"]
    assert court.bash(command, can_ask=False, deny=deny) == "deny"
    assert court.bash("cd src && cat a.py", can_ask=False, deny=deny) == "allow"


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "./.env",
        "src/../.env",
        "{root}/.env",
        "/{root}/.env",
        "link",
        "folder/a",
        ".ENV",
        "~/x",
    ],
)
def test_a_denied_file_is_denied_to_every_tool_that_reads(court: Court, path: str) -> None:
    (court.root / "secrets").mkdir()
    (court.root / "folder").symlink_to("secrets")
    (court.root / "link").symlink_to(".env")
    deny = ["Read(.env)", "Read(secrets/**)", "Read(~/x)"]
    for tool, name in (("read", "file_path"), ("grep", "path"), ("glob", "path")):
        arguments: dict[str, Any] = {name: path.replace("{root}", str(court.root))}
        assert court(tool, deny=deny, **arguments).verdict == "deny", tool


def test_an_allowed_path_is_relative_to_the_workspace_only(court: Court) -> None:
    (court.root / "other").mkdir()
    assert court.bash("echo x > src/a.py", allow=["Edit(src/**)"]) == "allow"
    assert court.bash("cd other && echo x > src/a.py", allow=["Edit(src/**)"]) == "ask"
    assert court.bash("cd .claude && echo x > settings.json", allow=["Edit(.claude/**)"]) == "deny"


def test_a_command_that_changes_to_many_folders_is_asked(court: Court) -> None:
    walk = "; ".join(f"cd d{n}" for n in range(40))
    assert court.bash(f"{walk}; cat x", can_ask=False, deny=["Read(.env)"]) == "ask"


def test_rules_match_agent_names_in_any_spelling(court: Court) -> None:
    assert court("task", agent="explore", prompt="x", deny=["Agent(Explore)"]).verdict == "deny"
    assert court("task", agent="general", prompt="x", deny=["Agent(Explore)"]).verdict == "allow"
    assert court("task", agent="my-reviewer", prompt="x", ask=["Task(my-*)"]).verdict == "ask"


def test_a_rule_can_name_all_tools_of_a_server() -> None:
    rule = parse_rule("mcp__github__*", Verdict.DENY)
    assert rule.names("mcp__github__push") and not rule.names("mcp__gitlab__push")
    assert parse_rule("mcp__github", Verdict.DENY).names("mcp__github__push")


@pytest.mark.parametrize(
    ("spec", "url", "fit"),
    [
        ("x.com", "https://x.com/a", True),
        ("x.com", "https://evilx.com", False),
        ("x.com", "https://x.com.evil.org", False),
        ("*.x.com", "https://a.x.com", True),
        ("*.x.com", "https://x.com", False),
        ("x.com", "https://x.com@evil.org", False),
        ("x.com", "https://X.COM.", True),
        ("x.com", "http://[", False),
    ],
)
def test_domains_are_compared_whole(spec: str, url: str, fit: bool) -> None:
    from mudroom.permissions.policy import RulePolicy

    async def run(context: Any, arguments: Any) -> Any:
        raise AssertionError

    tool = Tool(
        name="web_fetch",
        description="",
        parameters={},
        parse=dict,
        run=run,
        category=ToolCategory.NETWORK,
        rule_argument="url",
    )
    policy = RulePolicy(
        Permissions.of(allow=[f"WebFetch(domain:{spec})"]),
        workspace="/tmp",
        user_home="/",
        tools=builtin_tools(),
        tier=lambda: "off",
    )
    assert policy.decide(tool, {"url": url}, Mode.DEFAULT).verdict == ("allow" if fit else "ask")


def test_a_denied_tool_is_not_offered_to_the_model(tmp_path: Path) -> None:
    from mudroom import Session

    async def tools() -> set[str]:
        held = Permissions.of(deny=["Bash", "Write(./x)"])
        async with Session(
            model="offline",
            cwd=str(tmp_path),
            home=str(tmp_path / "h"),
            journal="memory",
            environ={},
            permissions=held,
        ) as session:
            return set(session.tools)

    import asyncio

    found = asyncio.run(tools())
    assert "bash" not in found and "write" in found
