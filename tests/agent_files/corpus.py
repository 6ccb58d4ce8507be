"""Agent and skill files in the style of each tool, valid and broken, with expected messages.

An expected message is "LINE: SEVERITY: part of the text", several joined by "; "; "" means nothing
at all. "used" tells whether an agent or a skill comes of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from mudroom import Budget, Output
from mudroom._core.agents import Mode, WorkspaceKind

BODY = "You do one thing well."


class Sample(NamedTuple):
    """One file.

    Arguments:
        wanted: attributes of its agent.
    """

    path: str
    text: str | bytes
    used: bool = True
    expected: str = ""
    wanted: Mapping[str, Any] = MappingProxyType({})


def make_file(*lines: str, body: str = BODY) -> str:
    """A file with a head of these lines."""
    return "\n".join(["---", *lines, "---", body, ""])


def claude(name: str) -> str:
    return f".claude/agents/{name}.md"


def skill(name: str) -> str:
    return f".agents/skills/{name}/SKILL.md"


def noted(path: str, expected: str, *head: str, body: str = BODY, **wanted: Any) -> Sample:
    """A file that is used, with messages.

    Arguments:
        path: whole; or `TOOL/NAME` for an agent of this tool, `NAME` for one of Claude Code.
    """
    if not path.startswith("."):
        tool, _, name = path.rpartition("/")
        path = f".{tool or 'claude'}/agents/{name}.md"
    return Sample(path, make_file(*head, body=body), expected=expected, wanted=wanted)


def agent(path: str, *head: str, body: str = BODY, **wanted: Any) -> Sample:
    """A file that is used, without messages."""
    return noted(path, "", *head, body=body, **wanted)


def broken(path: str, expected: str, *head: str, body: str = BODY) -> Sample:
    """A file that is not used."""
    return noted(path, expected, *head, body=body)._replace(used=False)


BASE = ("name: reviewer", "description: Reviews code.")

_GOOD: list[Sample] = [
    agent("plain", *BASE),
    agent("comma-tools", *BASE, "tools: Read, Grep, Glob", tools=("read", "grep", "glob")),
    agent("list-tools", *BASE, "tools:", "  - Read", "  - Bash"),
    agent(
        "flow-tools",
        *BASE,
        "tools: [Read, Edit, MultiEdit, Write]",
        tools=("read", "edit", "write"),
    ),
    agent("no-tools", *BASE, "tools: []", tools=()),
    agent(
        "mcp",
        *BASE,
        "tools: Read, mcp__github, mcp__github__list_issues",
        tools=("read", "mcp__github__*", "mcp__github__list_issues"),
    ),
    agent("disallowed", *BASE, "disallowedTools: Bash, Write", tools=("*", "!bash", "!write")),
    agent(
        "spawner",
        *BASE,
        "tools: Read, Agent(explore, plan)",
        tools=("read", "task"),
        children=("explore", "plan"),
    ),
    agent("spawner-old", *BASE, "tools: [Task(explore)]", tools=("task",), children=("explore",)),
    agent("model", *BASE, "model: sonnet", model="sonnet"),
    agent("turns", *BASE, "maxTurns: 12", budget=Budget(turns=12)),
    agent(
        "plan-mode", *BASE, "permissionMode: plan", tools=("*", "!write", "!edit"), mode=Mode.PLAN
    ),
    agent("folded", "name: folded", "description: >", "  Reviews code", "  and tests."),
    agent(claude("deep/er/in/sub"), *BASE),
    agent(
        "chinese",
        "name: 审查员",
        "description: 审查代码。",
        body="你审查代码。",
        name="审查员",
        instructions="你审查代码。",
    ),
    agent(
        "rule-in-body", *BASE, body="Begin.\n\n---\n\nEnd.", instructions="Begin.\n\n---\n\nEnd."
    ),
    agent("gemini/wild", *BASE, "tools: ['*']", tools=("*",)),
    agent(
        "gemini/mcp",
        *BASE,
        "tools: [read_file, mcp_*, mcp_db_query]",
        tools=("read", "mcp__*", "mcp__db__query"),
    ),
    agent(
        "gemini/limits",
        *BASE,
        "temperature: 0.2",
        "max_turns: 5",
        "timeout_mins: 3",
        temperature=0.2,
        budget=Budget(turns=5, seconds=180),
    ),
    agent(
        "gemini/shell",
        *BASE,
        "kind: local",
        "tools: [run_shell_command, list_directory]",
        tools=("bash", "glob"),
    ),
    agent(
        "opencode/review",
        "description: Reviews.",
        "mode: subagent",
        "temperature: 0.1",
        "top_p: 0.9",
        name="review",
        temperature=0.1,
        top_p=0.9,
    ),
    agent("opencode/main", "description: Talks.", "mode: primary"),
    agent(
        "opencode/tools",
        "description: T.",
        "tools: {write: false, edit: false, bash: true}",
        tools=("*", "!write", "!edit"),
    ),
    agent("opencode/few", "description: T.", "tools: {'*': false, read: true}", tools=("read",)),
    agent(
        "opencode/deny",
        "description: D.",
        "permission: {edit: deny, bash: deny, read: allow}",
        tools=("*", "!edit", "!bash", "!write"),
    ),
    agent(
        "opencode/only", "description: D.", "permission: {'*': deny, read: allow}", tools=("read",)
    ),
    agent(
        "opencode/who",
        "description: D.",
        "permission:",
        "  task:",
        "    '*': deny",
        "    explore: allow",
        tools=None,
        children=("explore",),
    ),
    agent("opencode/steps", "description: D.", "steps: 9"),
    Sample(
        ".codex/agents/plain.toml",
        'name = "plain"\ndescription = "Plain."\ndeveloper_instructions = """\nDo it.\n"""\n',
        wanted={"name": "plain", "instructions": "Do it."},
    ),
    Sample(
        ".codex/agents/ro.toml",
        'name="ro"\ndescription="R."\nsandbox_mode="read-only"\ndeveloper_instructions="x"\nmodel="gpt-5"\n',
        wanted={"tools": ("*", "!write", "!edit"), "mode": Mode.PLAN, "model": "gpt-5"},
    ),
    agent(
        "qwen/old",
        *BASE,
        "modelConfig: {temp: 0.3, top_p: 0.5}",
        "runConfig: {max_time_minutes: 2}",
        temperature=0.3,
        top_p=0.5,
        budget=Budget(seconds=120),
    ),
    noted(
        "qwen/approval",
        "4: note: never gets more permissions than its parent",
        *BASE,
        "approvalMode: auto-edit",
        mode=Mode.ACCEPT_EDITS,
    ),
    agent("goose/plain", *BASE, "model: gpt-5"),
    agent("agents/ours", "description: Named by its file.", name="ours"),
    agent(
        "agents/outputs",
        *BASE,
        "outputs: {title: the title, pages: {type: integer}}",
        outputs={"title": Output("the title"), "pages": Output("", {"type": "integer"})},
    ),
    agent(
        "agents/names",
        *BASE,
        "outputs: [title, author]",
        outputs={"title": Output(), "author": Output()},
    ),
    agent(
        "agents/schema",
        *BASE,
        "outputs: {type: object, properties: {n: {type: integer}, s: {enum: [a]}}, required: [n]}",
        outputs={
            "n": Output(schema={"type": "integer"}),
            "s": Output("", {"enum": ["a"]}, True),
        },
    ),
    agent(
        "agents/budget",
        *BASE,
        "budget: {turns: 5, minutes: 2, input_tokens: 1000, children: 0}",
        budget=Budget(turns=5, seconds=120, input_tokens=1000, children=0),
    ),
    agent("agents/copy", *BASE, "workspace: copy", workspace=WorkspaceKind.COPY),
    agent("agents/isolated", *BASE, "isolation: worktree", workspace=WorkspaceKind.ISOLATED),
    agent("agents/together", *BASE, "isolation: none", workspace=WorkspaceKind.SHARED),
    agent("agents/claims", *BASE, "claims: true", claims_tasks=True),
    agent(
        "agents/context",
        *BASE,
        "context: none",
        "child_tools: [read]",
        context_files="none",
        child_tools=("read",),
    ),
]

_NOTED: list[Sample] = [
    noted(
        "renamed",
        "2: note: 'code-reviewer'",
        "name: Code Reviewer",
        "description: R.",
        name="code-reviewer",
    ),
    noted(
        "color", "4: note: 'color'; 5: note: 'background'", *BASE, "color: red", "background: true"
    ),
    noted(
        "bypass",
        "4: note: never gets more permissions than its parent",
        *BASE,
        "permissionMode: bypassPermissions",
        tools=None,
        mode=Mode.BYPASS,
    ),
    noted("unknown", "4: warning: unknown key 'colour'", *BASE, "colour: red"),
    noted(
        "unknown-tool",
        "4: note: WebSearch is available only with --allow-net or an allow rule",
        *BASE,
        "tools: Read, WebSearch",
    ),
    noted(
        "web-tool",
        "4: note: WebFetch is available only with --allow-net",
        *BASE,
        "tools: Read, WebFetch, WebFetch(domain:docs.python.org)",
    ),
    agent(
        "limited-tool",
        *BASE,
        "tools: Read, Bash(git:*)",
        "disallowedTools: Read(.env), Bash(git push:*)",
        tools=("read", "bash(git:*)", "!read(.env)", "!bash(git push:*)"),
    ),
    broken("limited-wrong", "4: error: is not a tool pattern", *BASE, "tools: Read, Bash(git push"),
    noted(
        "colon",
        "3: warning: quotes",
        "name: colon",
        "description: Use this: when asked.",
        description="Use this: when asked.",
    ),
    noted(
        "bold",
        "3: warning: needs quotes",
        "name: bold",
        "description: **Reviews** code: use it (**always**).",
    ),
    agent("allowed-list", *BASE, "allowed-tools: [Read, Bash(git diff:*)]"),
    noted("twice", "5: warning: appears twice", *BASE, "model: opus", "model: haiku"),
    noted("wordy", "3: warning: 2,000 are used", "name: wordy", "description: " + "w" * 3_000),
    broken("bad-turns", "4: error: maxTurns is not a whole number", *BASE, "maxTurns: many"),
    broken(
        "no-turns", "4: error: maxTurns is not a whole number of at least 1", *BASE, "maxTurns: 0"
    ),
    noted("bad-model", "4: warning: model is not a text", *BASE, "model: [a, b]"),
    noted("bad-skill", "4: warning: unknown skill 'nothing'", *BASE, "skills: [nothing]"),
    noted("tagged", "4: note: 'color'", *BASE, "color: !!python/object:os.system ls"),
    noted("gemini/hot", "4: warning: number from 0 to 2", *BASE, "temperature: 9"),
    noted(
        "gemini/servers",
        "4: warning: mcp_servers db is no map of settings",
        *BASE,
        "mcp_servers: {db: 5}",
    ),
    noted(
        "opencode/ask",
        "3: note: the session decides when to ask",
        "description: A.",
        "permission: {bash: ask}",
    ),
    noted(
        "opencode/part",
        "3: warning: is not supported",
        "description: A.",
        "permission: {bash: {'git *': allow, '*': deny}}",
        tools=("*", "!bash"),
    ),
    noted(
        "opencode/but",
        "3: note: to ask",
        "description: A.",
        "permission: {bash: {'*': ask, 'rm *': deny}}",
        tools=("*", "!bash(rm *)"),
    ),
    Sample(
        ".codex/agents/nick.toml",
        'name="n"\ndescription="d"\ndeveloper_instructions="x"\nnickname_candidates=["a"]\n',
        expected="4: note: nickname",
    ),
    noted("qwen/more", "4: warning: unknown key 'max_hops'", *BASE, "runConfig: {max_hops: 2}"),
    noted(
        "agents/claims-wrong",
        "4: warning: claims is neither true nor false",
        *BASE,
        "claims: 2",
        claims_tasks=False,
    ),
    noted("agents/context-wrong", "4: warning: 'some' is not one of", *BASE, "context: some"),
    noted(
        "agents/outputs-wrong",
        "4: warning: neither a description nor a JSON Schema",
        *BASE,
        "outputs: {n: 3}",
    ),
    noted(
        "agents/passwd",
        "4: warning: Retrieval is disabled",
        *BASE,
        "outputs: {n: {$ref: 'file:///etc/passwd'}}",
    ),
    noted(
        "agents/outputs-schema",
        "4: warning: n is not a JSON Schema",
        *BASE,
        "outputs: {n: {type: nothing}}",
    ),
]

_BROKEN: list[Sample] = [
    Sample(claude("README"), "# Our agents\n\nRead me.\n", False, "1: note: documentation"),
    Sample(claude("empty"), "", False, "1: note: documentation"),
    broken("nameless", "1: error: no name", "description: Reviews."),
    broken("indescribable", "1: error: no description", "name: x"),
    broken("speechless", "5: error: no instructions", *BASE, body=""),
    broken("nothing", "1: error: no name", ""),
    broken("open-quote", "error: not YAML", 'name: "x', "description: y"),
    broken("alias", "3: error: aliases", "name: &a x", "description: *a"),
    broken("bomb", "3: error: aliases", "a: &a [x,x]", "b: &b [*a,*a,*a]", "c: [*b,*b,*b]"),
    broken("nested", "2: error: levels", "a: " + "[" * 500 + "]" * 500),
    broken("abyss", "2: error: ", "a: " + "[" * 30_000),
    broken("complex-key", "2: error: a key is not a text", "? [a, b]", ": c"),
    broken("long-head", "2: error: 65,536", "a: " + "x" * 70_000),
    broken("huge", "1: error: larger than", *BASE, body="x" * 1_100_000),
    Sample(claude("binary"), b"---\nname: x\n\0\0\n---\n", False, "3: error: binary"),
    Sample(
        claude("latin"),
        "---\nname: x\ndescription: caf\u00e9\n---\nx".encode("latin-1"),
        False,
        "3: error: not UTF-8",
    ),
    broken("control", "error: not YAML", "name: \x07", "description: y"),
    broken(
        "unspeakable", "2: warning: no letter; 1: error: no name", "name: '!!!'", "description: y"
    ),
    broken(
        "number", "2: warning: name is not a text; 1: error: no name", "name: 5", "description: y"
    ),
    broken("tools-number", "4: error: tools is not a list of names", *BASE, "tools: 5"),
    broken("tools-nobody", "4: error: names no tool; 4: warning: 'Fly'", *BASE, "tools: Fly, Swim"),
    broken("strange-mode", "4: error: 'silent' is not one of", *BASE, "permissionMode: silent"),
    broken("disallowed-map", "4: error: disallowedTools", *BASE, "disallowedTools: {a: b}"),
    broken(
        "gemini/remote", "1: note: are not supported", "name: r", "description: R.", "kind: remote"
    ),
    broken("opencode/off", "1: note: disabled", "description: O.", "disable: true"),
    broken(
        "opencode/permission",
        "3: error: permission is not a map",
        "description: O.",
        "permission: maybe",
    ),
    broken(
        "opencode/verdict",
        "3: error: 'never' is not one of",
        "description: O.",
        "permission: {edit: never}",
    ),
    broken("opencode/toolmap", "3: error: true and false", "description: O.", "tools: {edit: 1}"),
    Sample(
        ".codex/agents/broken.toml", 'name = "x"\ndescription = \n', False, "2: error: not TOML"
    ),
    Sample(
        ".codex/agents/sandbox.toml",
        'name="x"\ndescription="y"\ndeveloper_instructions="z"\nsandbox_mode="soft"\n',
        False,
        "4: error: 'soft'",
    ),
    Sample(".codex/agents/deep.toml", "a = " + "[" * 20_000, False, "1: error: not TOML"),
    broken(
        "qwen/config",
        "3: error: runConfig is not a map; 1: error: no description",
        "name: q",
        "runConfig: 5",
    ),
    broken(
        "agents/elsewhere",
        "4: error: 'elsewhere' is not one of shared, copy, isolated",
        *BASE,
        "workspace: elsewhere",
    ),
    broken("agents/budget-wrong", "4: error: budget turns", *BASE, "budget: {turns: lots}"),
    broken("agents/budget-key", "4: error: euros is unknown", *BASE, "budget: {euros: 3}"),
    broken("agents/budget-list", "4: error: budget is not a map", *BASE, "budget: [3]"),
]

_SKILLS: list[Sample] = [
    agent(skill("pdf"), "name: pdf", "description: Fills PDFs."),
    agent(".claude/skills/deep/er/SKILL.md", "name: er", "description: Found below."),
    agent(
        skill("full"),
        "name: full",
        "description: F.",
        "license: MIT",
        "compatibility: any",
        "metadata: {a: b}",
    ),
    noted(
        skill("tools"),
        "4: note: 'allowed-tools'",
        "name: tools",
        "description: F.",
        "allowed-tools: Read",
    ),
    agent(skill("quiet"), "name: quiet", "description: Q.", "disable-model-invocation: true"),
    agent(skill("when"), "name: when", "description: W.", "when_to_use: On Mondays."),
    noted(
        skill("other"), "2: warning: differs from its folder's", "name: another", "description: A."
    ),
    noted(skill("caps"), "2: warning: hyphens", "name: Caps Lock", "description: C."),
    noted(skill("nameless"), "1: warning: no name", "description: N."),
    noted(skill("number"), "2: warning: name is not a text", "name: 5", "description: N."),
    noted(
        skill("wordy"), "3: warning: 2,000 characters", "name: wordy", "description: " + "w" * 2_000
    ),
    noted(
        skill("picky"),
        "4: warning: 500",
        "name: picky",
        "description: P.",
        "compatibility: " + "c" * 600,
    ),
    noted(
        skill("meta2"),
        "4: warning: map of texts",
        "name: meta2",
        "description: M.",
        "metadata: {v: 3}",
    ),
    noted(
        skill("free"),
        "4: warning: license is not a text",
        "name: free",
        "description: F.",
        "license: [MIT]",
    ),
    noted(
        skill("odd"), "4: warning: unknown key 'mood'", "name: odd", "description: O.", "mood: good"
    ),
    noted(skill("colon"), "3: warning: quotes", "name: colon", "description: Use: now"),
    noted(
        skill("shell"),
        "6: note: are run only when the user calls",
        "name: shell",
        "description: S.",
        body="a\n!`date` now",
    ),
    noted(skill("mute"), "1: warning: no description: the first line", "name: mute"),
    broken(skill("void"), "1: error: no description", "name: void", body=""),
    Sample(skill("empty"), "", False, "1: error: the file is empty"),
    Sample(skill("binary"), b"\x7fELF\0\0", False, "1: error: binary"),
    broken(skill("broken"), "error: not YAML", "name: [", "description: x"),
]

AGENTS = [*_GOOD, *_NOTED, *_BROKEN]
SKILLS = _SKILLS
