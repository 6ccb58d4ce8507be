"""Permission rules: their syntax, the calls they match, and which one decides."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mudroom import ToolResult
from mudroom._adapters.tools import make_builtin_tools
from mudroom._core.agents import Mode
from mudroom._core.tool_names import parse_tool_pattern
from mudroom._core.tools import Effect, Tool, ToolCategory
from mudroom.errors import UsageError
from mudroom.permissions.rules import (
    Permissions,
    Rule,
    Verdict,
    matches_pattern,
    parse_rule,
    split_rules,
)

from ..long_form import count_examples
from .conftest import Play, RuleJudge


async def _never_run(context: object, arguments: object) -> ToolResult:
    raise AssertionError


def make_tool(name: str, **fields: Any) -> Tool:
    fields = {"effect": Effect.EFFECTFUL, **fields}
    return Tool(name=name, description="", parameters={}, parse=dict, run=_never_run, **fields)


@pytest.mark.parametrize(
    ("spec", "text", "fit"),
    [
        ("ls *", "ls", True),
        ("ls:*", "ls", True),
        ("ls:*", "lsof", False),
        ("npm run test:*", "npm run tests", False),
        ("a.c", "abc", False),
        ("git diff:*", "git difftool", False),
        ("git:* push", "git -C /x push", True),
        ("curl http://x:*/y", "curl http://x:80/y", True),
    ],
)
def test_patterns_of_commands(spec: str, text: str, fit: bool) -> None:
    assert matches_pattern(spec, text) is fit


def test_patterns_of_commands_match_as_a_regular_expression_does() -> None:
    choose = random.Random(11)
    for _ in range(count_examples(3_000, 300_000)):
        pattern = "".join(choose.choices("ab: *", weights=(3, 2, 1, 1, 3), k=choose.randrange(9)))
        text = "".join(
            choose.choices("ab: *\n", weights=(3, 2, 1, 1, 1, 1), k=choose.randrange(12))
        )
        spec = f"{pattern[:-2]} *" if pattern.endswith(":*") else pattern
        end = "(?: .*)?" if spec.endswith(" *") else ""
        parts = [
            ".*".join(map(re.escape, part.split("*")))
            for part in (spec[:-2] if end else spec).split(":*")
        ]
        expected = re.fullmatch("(?:[: ].*)?".join(parts) + end, text, re.DOTALL)
        assert matches_pattern(pattern, text) is bool(expected), (pattern, text)


@pytest.mark.parametrize(
    ("text", "tool", "spec"),
    [
        ("Bash", "bash", ""),
        ("Bash(*)", "bash", ""),
        ("Bash(:*)", "bash", ""),
        ("Bash(git diff:*)", "bash", "git diff:*"),
        ("run_shell_command(ls)", "bash", "ls"),
        ("Read(./.env)", "read", "./.env"),
        ("Agent(explore)", "task", "explore"),
        ("mcp__a__*", "mcp__a__*", ""),
        ("WebFetch(domain:x.com)", "web_fetch", "domain:x.com"),
        ("MultiEdit", "edit", ""),
        ("Bash(echo (a))", "bash", "echo (a)"),
    ],
)
def test_rules_accept_the_tool_names_of_other_programs(text: str, tool: str, spec: str) -> None:
    rule = parse_rule(text, Verdict.ALLOW)
    assert (rule.tool, rule.pattern) == (tool, spec)


@pytest.mark.parametrize("text", ["", "Bash(", "(ls)", "1x", "Bash)"])
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


def test_deny_wins_over_ask_and_ask_over_allow(judge_call: RuleJudge) -> None:
    assert (
        judge_call.bash("make x", allow=["Bash(make x)"], ask=["Bash(make:*)"], deny=["Bash"])
        == "deny"
    )
    assert judge_call.bash("make x", allow=["Bash(make x)"], ask=["Bash(make:*)"]) == "ask"
    assert judge_call.bash("make x", allow=["Bash(make x)"]) == "allow"


def test_every_part_is_judged_by_itself(judge_call: RuleJudge) -> None:
    assert judge_call.bash("make a && npm test", allow=["Bash(make:*)"]) == "ask"
    assert (
        judge_call.bash("make a && npm test", allow=["Bash(make:*)", "Bash(npm test)"]) == "allow"
    )
    decision = judge_call("bash", command="make a && npm test", allow=["Bash(make:*)"])
    assert decision.command_part == "npm test" and decision.why == "no rule allows it"


def test_harmless_wrappers_do_not_change_the_verdict(judge_call: RuleJudge) -> None:
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
        assert judge_call.bash(f"{wrapper} lint a", allow=["Bash(lint a:*)"]) == "allow", wrapper
        assert judge_call.bash(f"{wrapper} make", allow=["Bash(lint a:*)"]) == "ask", wrapper


def test_only_safe_variables_may_stand_before_an_allowed_command(judge_call: RuleJudge) -> None:
    assert judge_call.bash("NODE_ENV=test LC_ALL=C npm test", allow=["Bash(npm test)"]) == "allow"
    assert judge_call.bash("PATH=. npm test", allow=["Bash(npm test)"]) == "ask"
    assert judge_call.bash("PATH=. npm test", allow=["Bash(PATH=. npm test)"]) == "allow"


READS = [
    "ls -la src",
    "cat src/a.py | head -3",
    "git status",
    "grep -rn x src",
    "find . -name '*.py'",
    "sed -n '1,5p' src/a.py",
    "cd src && ls",
    "[ -f src/a.py ] && cat src/a.py",
    "for f in src/*.py; do echo $f; done | sort",
    "ls 2>/dev/null",
    "echo $HOME",
    "x=1; echo $x",
    "bash -c 'ls src'",
    "if test -d src; then ls src; fi",
    "head -5 < src/a.py",
    "cat <<E\nhello\nE",
    "command -v git",
    "",
]


@pytest.mark.parametrize("command", READS)
def test_reading_commands_are_allowed(judge_call: RuleJudge, command: str) -> None:
    for mode in ("default", "plan", "dontAsk"):
        assert judge_call.bash(command, mode=mode, tier="full") == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/passwd",
        "cat ~/.ssh/id_rsa",
        "cat $x",
        "cd && cat x",
        "cat link/../x",
        "cd src && cat out/passwd",
        "grep x --file=/etc/x",
    ],
)
def test_reading_outside_the_workspace_is_asked(judge_call: RuleJudge, command: str) -> None:
    (judge_call.root / "link").symlink_to("/etc")
    (judge_call.root / "src" / "out").symlink_to("/etc")
    assert judge_call.bash(command) == "ask"


MODES = {
    # read, edit, bash, ruled, asked, mcp
    "plan": "allow deny deny deny deny deny",
    "dontAsk": "allow deny deny allow deny deny",
    "default": "allow ask ask allow ask ask",
    "acceptEdits": "allow allow allow allow ask ask",
    "bypassPermissions": "allow allow allow allow allow allow",
}


@pytest.mark.parametrize("mode", MODES)
def test_modes(judge_call: RuleJudge, mode: str) -> None:
    rules: dict[str, Any] = {
        "allow": ["Bash(npm test)"],
        "ask": ["Bash(make:*)"],
        "mode": mode,
        "tier": "full",
    }
    of_server = judge_call.make_policy(Permissions(can_ask=True), "full")
    outcomes = [
        judge_call("read", file_path="src/a.py", **rules).verdict,
        judge_call("edit", file_path="src/a.py", **rules).verdict,
        judge_call.bash("cargo build", **rules),
        judge_call.bash("npm test", **rules),
        judge_call.bash("make", **rules),
        of_server.decide(make_tool("mcp__a__b"), {}, Mode(mode)).verdict,
    ]
    assert outcomes == MODES[mode].split()
    assert judge_call.bash("rm x", deny=["Bash(rm:*)"], mode=mode) == "deny"


def test_a_redirect_into_a_file_is_an_edit(judge_call: RuleJudge) -> None:
    for mode, verdict in (("acceptEdits", "allow"), ("default", "ask"), ("plan", "deny")):
        assert judge_call.bash("echo x > a", mode=mode) == verdict
    decision = judge_call("bash", command="echo x > a", allow=["Edit(a)"])
    assert (decision.verdict, decision.rule) == ("allow", "allow edit(a)")


@pytest.mark.parametrize("name", ["LD_PRELOAD", "GIT_PAGER", "PYTHONPATH", "BASH_ENV"])
def test_a_variable_that_changes_what_a_program_runs_is_asked(
    judge_call: RuleJudge, name: str
) -> None:
    assert judge_call.bash(f"{name}=x git log") == "ask"
    assert judge_call.bash(f"export {name}=x") == "ask"


def test_git_in_another_folder_is_asked(judge_call: RuleJudge) -> None:
    assert judge_call.bash("git status", tier="full") == "allow"
    assert judge_call.bash("cd src && git status", tier="full") == "ask"


def test_a_workspace_inside_a_protected_folder_can_be_written(tmp_path: Path) -> None:
    root = tmp_path / ".claude" / "worktree"
    root.mkdir(parents=True)
    assert RuleJudge(root, tmp_path).bash("echo x > a") == "ask"
    assert RuleJudge(root, tmp_path).bash("echo x > .claude/settings.json") == "deny"


def test_a_path_in_a_settings_file_is_relative_to_the_folder_of_the_file(tmp_path: Path) -> None:
    from mudroom.permissions.policy import RulePolicy

    (tmp_path / "package").mkdir()
    policy = RulePolicy(
        Permissions(rules=(parse_rule("Read(/key)", Verdict.DENY, base=str(tmp_path)),)),
        workspace=str(tmp_path / "package"),
        user_home="/",
        tools=make_builtin_tools(),
        tier=lambda: "off",
    )
    read = make_builtin_tools()["read"]
    assert policy.decide(read, {"file_path": "../key"}, Mode.DEFAULT).verdict == "deny"
    assert policy.decide(read, {"file_path": "key"}, Mode.DEFAULT).verdict == "allow"


def test_accept_edits_allows_commands_only_in_a_sandbox(judge_call: RuleJudge) -> None:
    for tier, verdict in (("full", "allow"), ("file", "allow"), ("off", "ask"), ("ask", "ask")):
        assert judge_call.bash("cargo build", mode="acceptEdits", tier=tier) == verdict


def test_unattended_without_rules_everything_is_allowed(judge_call: RuleJudge) -> None:
    assert judge_call.bash("cargo build", can_ask=False) == "allow"
    assert judge_call("write", file_path="a", can_ask=False).verdict == "allow"
    assert judge_call.bash("if", can_ask=False) == "allow"


def test_unattended_deny_and_ask_rules_apply_and_problems_are_asked(judge_call: RuleJudge) -> None:
    assert judge_call.bash("git push", can_ask=False, deny=["Bash(git push:*)"]) == "deny"
    assert judge_call.bash("git ${x@P}", can_ask=False, deny=["Bash(git push:*)"]) == "ask"
    assert judge_call.bash("cargo build", can_ask=False, deny=["Bash(git push:*)"]) == "allow"


def test_unattended_allow_rules_exclude_everything_but_reading(judge_call: RuleJudge) -> None:
    only: dict[str, Any] = {"can_ask": False, "allow": ["Bash(npm test:*)"]}
    assert judge_call.bash("npm test", **only) == "allow"
    assert judge_call.bash("cargo build", **only) == "ask"
    assert judge_call("write", file_path="a", **only).verdict == "ask"
    assert judge_call.bash("ls src", **only) == "allow"
    assert judge_call("read", file_path="src/a.py", **only).verdict == "allow"


@pytest.mark.parametrize(
    ("spec", "path", "fit"),
    [
        (".env", ".env", True),
        (".env", "src/.env", True),
        ("./.env", "src/.env", False),
        ("src/**", "src/a.py", True),
        ("*.py", "src/a.py", True),
        ("src/", "src/a.py", True),
        ("~/.ssh/**", "{home}/.ssh/id", True),
        ("//etc/**", "/etc/passwd", True),
        ("//{root}/src/**", "src/a.py", True),
        ("/etc/passwd", "/etc/passwd", False),
        (".env", "src/../.env", True),
        ("../other/**", "{base}/other/x", True),
        ("proj", "{base}/project-secret/x", False),
    ],
)
def test_patterns_of_paths(judge_call: RuleJudge, spec: str, path: str, fit: bool) -> None:
    names = {
        "root": str(judge_call.root),
        "home": str(judge_call.home),
        "base": str(judge_call.root.parent),
    }
    rule, path = spec.format(**names).replace("///", "//"), path.format(**names)
    assert judge_call("read", file_path=path, deny=[f"Read({rule})"]).verdict == (
        "deny" if fit else "allow"
    )


def test_a_link_is_denied_by_its_target_and_allowed_by_name_and_target(
    judge_call: RuleJudge,
) -> None:
    (judge_call.root / "link").symlink_to(judge_call.root / ".env")
    assert judge_call("read", file_path="link", deny=["Read(.env)"]).verdict == "deny"
    assert judge_call("edit", file_path="link", allow=["Edit(link)"]).verdict == "ask"
    assert judge_call("edit", file_path="link", allow=["Edit(link)", "Edit(.env)"]).verdict == "ask"
    assert judge_call("edit", file_path="src/a.py", allow=["Edit(src/**)"]).verdict == "allow"


def test_a_link_whose_name_is_not_utf8_is_denied_by_its_target(judge_call: RuleJudge) -> None:
    os.symlink(os.fsencode(judge_call.root / ".env"), os.fsencode(judge_call.root) + b"/\xe9")
    assert judge_call("write", file_path=r"\xe9", content="", deny=["Edit(.env)"]).verdict == "deny"


def test_file_rules_apply_to_all_file_tools_and_to_commands(judge_call: RuleJudge) -> None:
    deny: dict[str, Any] = {"deny": ["Read(.env)", "Edit(src/**)"]}
    assert judge_call("grep", pattern="x", path=".env", **deny).verdict == "deny"
    assert judge_call("write", file_path="src/new.py", content="", **deny).verdict == "deny"
    for command in (
        "cat .env",
        "cat ./.env",
        "cp .env x",
        "dd if=.env",
        "echo x > src/a.py",
    ):
        assert judge_call.bash(command, **deny) == "deny", command
    assert judge_call.bash("cat src/a.py", **deny) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "cd src && cat ../.env",
        "(cd src; cat key)",
        "bash -c 'cd src; cat key'",
        "env -C src cat key",
        "git -C src diff --no-index /dev/null key",
        "cat //{root}/.env",
        "cat /proc/self/cwd/.env",
        "cat /proc/self/root{root}/src/key",
        "cd src && cat ~/x",
        "cat .ENV",
        "cat .E\uff2e\uff36",
        'cat "$PWD/.env"',
        "cat ~+/.env",
        "cat {a,.env}",
        "cat folder/a",
        "cat ~/x",
    ],
)
def test_a_denied_file_is_denied_by_every_spelling(judge_call: RuleJudge, command: str) -> None:
    (judge_call.root / "src" / "key").write_text("k")
    (judge_call.root / "secrets").mkdir()
    (judge_call.root / "folder").symlink_to("secrets")
    command = command.replace("{root}", str(judge_call.root)).replace(
        "{home}", str(judge_call.home)
    )
    deny = ["Read(.env)", "Read(src/key)", "Read(secrets/**)", "Read(folder/a)", "Read(~/x)"]
    assert judge_call.bash(command, can_ask=False, deny=deny) == "deny"
    assert judge_call.bash("cd src && cat a.py", can_ask=False, deny=deny) == "allow"


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "./.env",
        "{root}/.env",
        "/{root}/.env",
        "link",
        ".ENV",
        "~/x",
    ],
)
def test_a_denied_file_is_denied_to_every_tool_that_reads(judge_call: RuleJudge, path: str) -> None:
    (judge_call.root / "secrets").mkdir()
    (judge_call.root / "folder").symlink_to("secrets")
    (judge_call.root / "link").symlink_to(".env")
    deny = ["Read(.env)", "Read(secrets/**)", "Read(~/x)"]
    for tool, name in (("read", "file_path"), ("grep", "path"), ("glob", "path")):
        arguments: dict[str, Any] = {name: path.replace("{root}", str(judge_call.root))}
        assert judge_call(tool, deny=deny, **arguments).verdict == "deny", tool


def test_an_allowed_path_is_relative_to_the_workspace_only(judge_call: RuleJudge) -> None:
    (judge_call.root / "other").mkdir()
    assert judge_call.bash("echo x > src/a.py", allow=["Edit(src/**)"]) == "allow"
    assert judge_call.bash("cd other && echo x > src/a.py", allow=["Edit(src/**)"]) == "ask"
    assert (
        judge_call.bash("cd .claude && echo x > settings.json", allow=["Edit(.claude/**)"])
        == "deny"
    )


def test_a_command_that_changes_to_many_folders_is_asked(judge_call: RuleJudge) -> None:
    walk = "; ".join(f"cd d{n}" for n in range(40))
    assert judge_call.bash(f"{walk}; cat x", can_ask=False, deny=["Read(.env)"]) == "ask"


def test_rules_match_agent_names_in_any_spelling(judge_call: RuleJudge) -> None:
    assert (
        judge_call("task", agent="explore", prompt="x", deny=["Agent(Explore)"]).verdict == "deny"
    )
    assert (
        judge_call("task", agent="general", prompt="x", deny=["Agent(Explore)"]).verdict == "allow"
    )
    assert judge_call("task", agent="my-reviewer", prompt="x", ask=["Task(my-*)"]).verdict == "ask"
    assert judge_call("task", agent="other", prompt="x", ask=["Task(my-*)"]).verdict == "allow"


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
        ("*.x.com", "https://evilx.com", False),
        ("*.x.com", "https://a.evil.org", False),
        ("x.com", "https://x.com@evil.org", False),
        ("x.com", "https://X.COM.", True),
        ("x.com", "http://[", False),
    ],
)
def test_domains_are_compared_whole(judge_call: RuleJudge, spec: str, url: str, fit: bool) -> None:
    tool = make_tool("web_fetch", category=ToolCategory.NETWORK, rule_argument="url")
    policy = judge_call.make_policy(Permissions.of(allow=[f"WebFetch(domain:{spec})"]))
    assert policy.decide(tool, {"url": url}, Mode.DEFAULT).verdict == ("allow" if fit else "ask")


@pytest.mark.parametrize(
    ("text", "named", "others"),
    [
        ("mcp__*", "mcp__git__log mcp__a-b__c", "bash mcp_call"),
        ("mcp__git*", "mcp__git__log mcp__github__push", "mcp__time__now"),
        ("mcp__*__read", "mcp__git__read", "mcp__git__log read"),
        ("mcp__git__l*", "mcp__git__log", "mcp__git__push"),
        ("*", "bash mcp__git__log", ""),
    ],
)
def test_a_star_stands_for_any_part_of_the_name_of_a_tool(
    text: str, named: str, others: str
) -> None:
    """In rules as in the tools of an agent."""
    rule = parse_rule(text, Verdict.ALLOW) if text != "*" else Rule(Verdict.ALLOW, "*")
    pattern = parse_tool_pattern(text)
    for tool in named.split():
        assert rule.names(tool) and pattern.matches_tool(tool), tool
    for tool in others.split():
        assert not rule.names(tool) and not pattern.matches_tool(tool), tool


async def test_a_denied_tool_is_not_offered_to_the_model(play: Play) -> None:
    await play(["end"], permissions=Permissions.of(deny=["Bash", "Write(./x)"]))
    (request,) = play.model.requests
    assert "bash" not in request.tools and "write" in request.tools


DRAW = make_tool("draw", needs_confirmation=True)


@pytest.mark.parametrize(
    ("mode", "verdict", "why"),
    [
        ("default", "ask", "the tool asks for confirmation"),
        ("acceptEdits", "ask", "the tool asks for confirmation"),
        ("plan", "deny", "only reading is allowed in plan mode"),
        ("dontAsk", "deny", "the tool asks for confirmation, and this mode asks no questions"),
        ("bypassPermissions", "allow", "only deny rules apply in this mode"),
    ],
)
def test_a_tool_that_needs_confirmation_is_asked_unless_a_mode_decides(
    judge_call: RuleJudge, mode: str, verdict: str, why: str
) -> None:
    for rules in (Permissions(can_ask=True), Permissions()):
        decision = judge_call.make_policy(rules).decide(DRAW, {}, Mode(mode))
        assert (decision.verdict, decision.why, decision.rule) == (verdict, why, "")


def test_a_rule_decides_about_a_tool_that_needs_confirmation(judge_call: RuleJudge) -> None:
    policy = judge_call.make_policy(Permissions.of(allow=["draw"]))
    decision = policy.decide(DRAW, {}, Mode.DEFAULT)
    assert (decision.verdict, decision.why, decision.rule) == (
        "allow",
        "a rule says allow",
        "allow draw",
    )


def test_each_command_that_needs_confirmation_is_asked(judge_call: RuleJudge) -> None:
    bash = replace(make_builtin_tools()["bash"], needs_confirmation=True)
    policy = judge_call.make_policy(Permissions.of(allow=["Bash(make)"]))
    for command in ("ls", "make"):
        decision = policy.decide(bash, {"command": command}, Mode.DEFAULT)
        assert decision.verdict == "ask"
        assert decision.why == "without a sandbox each command needs a confirmation"


@pytest.mark.parametrize("tier", ["off", "full"])
@pytest.mark.parametrize("mode", ["default", "acceptEdits"])
@pytest.mark.parametrize("path", ["/etc/x", "../x", "link/x", "link/../x", "src/../../x"])
def test_an_edit_outside_the_workspace_is_asked(
    judge_call: RuleJudge, path: str, mode: str, tier: str
) -> None:
    outside = judge_call.root.parent / "outside"
    outside.mkdir(exist_ok=True)
    (judge_call.root / "link").symlink_to(outside)
    why = f"{path} is outside the workspace (set it with -C, or cwd in a program)"
    decision = judge_call("write", file_path=path, mode=mode, tier=tier)
    assert (decision.verdict, decision.why) == ("ask", why)
    assert judge_call("write", file_path=path, mode="plan").verdict == "deny"
    write = make_builtin_tools()["write"]
    for rules in (Permissions(), Permissions.of(deny=["Bash"])):
        decision = judge_call.make_policy(rules).decide(write, {"file_path": path}, Mode(mode))
        assert (decision.verdict, decision.why) == ("ask", why), "without a user, it is denied"


@pytest.mark.parametrize("path", ["x", "src/../x", "./src/x"])
def test_an_edit_inside_the_workspace_runs_unasked(judge_call: RuleJudge, path: str) -> None:
    assert judge_call("write", file_path=path, mode="acceptEdits").verdict == "allow"


def test_a_rule_with_the_pattern_in_its_tool_is_an_error() -> None:
    with pytest.raises(UsageError, match=r'Write Rule\(Verdict.ASK, "bash", "rm:\*"\)'):
        Rule(Verdict.ASK, "bash(rm:*)")
