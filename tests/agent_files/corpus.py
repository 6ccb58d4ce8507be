"""Agent and skill files in the style of each tool, valid and broken, with expected messages.

An expected message is "LINE: SEVERITY: part of the text", several joined by "; "; "" means nothing
at all. "used" tells whether an agent or a skill comes of the file.
"""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """One file."""

    path: str
    text: str | bytes
    used: bool = True
    expected: str = ""


def make_file(*lines: str, body: str = "You do one thing well.") -> str:
    """A file with a head of these lines."""
    return "\n".join(["---", *lines, "---", body, ""])


CLAUDE = ".claude/agents/{}.md"
BASE = ("name: reviewer", "description: Reviews code.")

_GOOD: list[Sample] = [
    Sample(CLAUDE.format("plain"), make_file(*BASE)),
    Sample(CLAUDE.format("comma-tools"), make_file(*BASE, "tools: Read, Grep, Glob")),
    Sample(CLAUDE.format("list-tools"), make_file(*BASE, "tools:", "  - Read", "  - Bash")),
    Sample(CLAUDE.format("flow-tools"), make_file(*BASE, "tools: [Read, Edit, MultiEdit, Write]")),
    Sample(CLAUDE.format("no-tools"), make_file(*BASE, "tools: []")),
    Sample(
        CLAUDE.format("mcp"), make_file(*BASE, "tools: Read, mcp__github, mcp__github__list_issues")
    ),
    Sample(CLAUDE.format("disallowed"), make_file(*BASE, "disallowedTools: Bash, Write")),
    Sample(CLAUDE.format("spawner"), make_file(*BASE, "tools: Read, Agent(explore, plan)")),
    Sample(CLAUDE.format("spawner-old"), make_file(*BASE, "tools: [Task(explore)]")),
    Sample(CLAUDE.format("model"), make_file(*BASE, "model: sonnet")),
    Sample(CLAUDE.format("inherit"), make_file(*BASE, "model: inherit")),
    Sample(CLAUDE.format("turns"), make_file(*BASE, "maxTurns: 12")),
    Sample(CLAUDE.format("plan-mode"), make_file(*BASE, "permissionMode: plan")),
    Sample(CLAUDE.format("default-mode"), make_file(*BASE, "permissionMode: default")),
    Sample(
        CLAUDE.format("folded"),
        make_file("name: folded", "description: >", "  Reviews code", "  and tests."),
    ),
    Sample(
        CLAUDE.format("literal"),
        make_file("name: literal", "description: |", "  Reviews code.", "  <example>go</example>"),
    ),
    Sample(
        CLAUDE.format("quoted"), make_file('name: "quoted"', "description: 'Use this: always.'")
    ),
    Sample(CLAUDE.format("deep/er/in/sub"), make_file(*BASE)),
    Sample(CLAUDE.format("crlf"), make_file(*BASE).replace("\n", "\r\n")),
    Sample(CLAUDE.format("bom"), "\ufeff" + make_file(*BASE)),
    Sample(
        CLAUDE.format("chinese"),
        make_file("name: 审查员", "description: 审查代码。", body="你审查代码。"),
    ),
    Sample(CLAUDE.format("rule-in-body"), make_file(*BASE, body="Begin.\n\n---\n\nEnd.")),
    Sample(CLAUDE.format("comments"), make_file("# my agent", *BASE, "tools: Read  # only this")),
    Sample(
        ".gemini/agents/plain.md",
        make_file(
            "name: plain",
            "description: Plain.",
            "kind: local",
            "tools: [read_file, search_file_content]",
        ),
    ),
    Sample(".gemini/agents/wild.md", make_file("name: wild", "description: All.", "tools: ['*']")),
    Sample(
        ".gemini/agents/mcp.md",
        make_file("name: mcp", "description: MCP.", "tools: [read_file, mcp_*, mcp_db_query]"),
    ),
    Sample(
        ".gemini/agents/limits.md",
        make_file(
            "name: limits", "description: L.", "temperature: 0.2", "max_turns: 5", "timeout_mins: 3"
        ),
    ),
    Sample(
        ".gemini/agents/shell.md",
        make_file(
            "name: shell",
            "description: S.",
            "tools:",
            "  - run_shell_command",
            "  - list_directory",
        ),
    ),
    Sample(
        ".opencode/agents/review.md",
        make_file("description: Reviews.", "mode: subagent", "temperature: 0.1", "top_p: 0.9"),
    ),
    Sample(
        ".opencode/agent/all.md",
        make_file("description: Reviews.", "mode: all", "model: anthropic/claude-sonnet-4-5"),
    ),
    Sample(
        ".opencode/agent/subagents/code/tester.md",
        make_file("description: Tests.", "mode: subagent", "tools:", "  bash: true"),
    ),
    Sample(".opencode/agents/main.md", make_file("description: Talks.", "mode: primary")),
    Sample(
        ".opencode/agents/tools.md",
        make_file("description: T.", "tools:", "  write: false", "  edit: false", "  bash: true"),
    ),
    Sample(
        ".opencode/agents/few.md",
        make_file("description: T.", "tools:", "  '*': false", "  read: true"),
    ),
    Sample(
        ".opencode/agents/deny.md",
        make_file(
            "description: D.", "permission:", "  edit: deny", "  bash: deny", "  read: allow"
        ),
    ),
    Sample(
        ".opencode/agents/only.md",
        make_file("description: D.", "permission:", "  '*': deny", "  read: allow"),
    ),
    Sample(
        ".opencode/agents/who.md",
        make_file(
            "description: D.", "permission:", "  task:", "    '*': deny", "    explore: allow"
        ),
    ),
    Sample(".opencode/agents/steps.md", make_file("description: D.", "steps: 9")),
    Sample(
        ".codex/agents/plain.toml",
        'name = "plain"\ndescription = "Plain."\ndeveloper_instructions = """\nDo it.\n"""\n',
    ),
    Sample(
        ".codex/agents/ro.toml",
        'name="ro"\ndescription="R."\nsandbox_mode="read-only"\ndeveloper_instructions="x"\nmodel="gpt-5"\n',
    ),
    Sample(
        ".qwen/agents/plain.md",
        make_file(
            "name: plain", "description: Plain.", "tools:", "  - read_file", "  - write_file"
        ),
    ),
    Sample(
        ".qwen/agents/old.md",
        make_file(
            *BASE,
            "modelConfig:",
            "  temp: 0.3",
            "  top_p: 0.5",
            "runConfig:",
            "  max_time_minutes: 2",
        ),
    ),
    Sample(
        ".qwen/agents/approval.md",
        make_file(*BASE, "approvalMode: auto-edit"),
        expected="4: note: never gets more permissions than its parent",
    ),
    Sample(
        ".goose/agents/plain.md", make_file("name: plain", "description: Plain.", "model: gpt-5")
    ),
    Sample(".agents/agents/ours.md", make_file("description: Named by its file.")),
    Sample(
        ".agents/agents/outputs.md",
        make_file(*BASE, "outputs:", "  title: the title", "  pages: {type: integer}"),
    ),
    Sample(".agents/agents/names.md", make_file(*BASE, "outputs: [title, author]")),
    Sample(
        ".agents/agents/schema.md",
        make_file(
            *BASE,
            "outputs:",
            "  type: object",
            "  properties: {n: {type: integer}, s: {type: string}}",
            "  required: [n]",
        ),
    ),
    Sample(
        ".agents/agents/budget.md",
        make_file(*BASE, "budget: {turns: 5, minutes: 2, input_tokens: 1000, children: 0}"),
    ),
    Sample(".agents/agents/context.md", make_file(*BASE, "context: none", "child_tools: [read]")),
]

_NOTED: list[Sample] = [
    Sample(
        CLAUDE.format("renamed"),
        make_file("name: Code Reviewer", "description: R."),
        expected="2: note: 'code-reviewer'",
    ),
    Sample(
        CLAUDE.format("color"),
        make_file(*BASE, "color: red", "background: true"),
        expected="4: note: 'color'; 5: note: 'background'",
    ),
    Sample(
        CLAUDE.format("hooks"),
        make_file(*BASE, "hooks:", "  PreToolUse: []", "memory: user"),
        expected="4: note: 'hooks'; 6: note: 'memory'",
    ),
    Sample(
        CLAUDE.format("bypass"),
        make_file(*BASE, "permissionMode: bypassPermissions"),
        expected="4: note: never gets more permissions than its parent",
    ),
    Sample(
        CLAUDE.format("unknown"),
        make_file(*BASE, "colour: red"),
        expected="4: warning: unknown key 'colour'",
    ),
    Sample(
        CLAUDE.format("unknown-tool"),
        make_file(*BASE, "tools: Read, WebSearch"),
        expected="4: note: WebSearch is available only with --allow-net or an allow rule",
    ),
    Sample(
        CLAUDE.format("web-tool"),
        make_file(*BASE, "tools: Read, WebFetch, WebFetch(domain:docs.python.org)"),
        expected="4: note: WebFetch is available only with --allow-net",
    ),
    Sample(
        CLAUDE.format("limited-tool"),
        make_file(
            *BASE, "tools: Read, Bash(git:*)", "disallowedTools: Read(.env), Bash(git push:*)"
        ),
    ),
    Sample(
        CLAUDE.format("limited-wrong"),
        make_file(*BASE, "tools: Read, Bash(git push"),
        used=False,
        expected="4: error: is not a tool pattern",
    ),
    Sample(
        CLAUDE.format("colon"),
        make_file("name: colon", "description: Use this: when asked."),
        expected="3: warning: quotes",
    ),
    Sample(
        CLAUDE.format("star-tools"),
        make_file(*BASE, "tools: *"),
        expected="4: warning: needs quotes",
    ),
    Sample(
        CLAUDE.format("bold"),
        make_file("name: bold", "description: **Reviews** code: use it (**always**)."),
        expected="3: warning: needs quotes",
    ),
    Sample(
        CLAUDE.format("mention"),
        make_file("name: mention", "description: @code-reviewer for Python"),
        expected="3: warning: needs quotes",
    ),
    Sample(
        CLAUDE.format("allowed-list"),
        make_file(*BASE, "allowed-tools:", "  - Read", "  - Bash(git diff:*)"),
    ),
    Sample(
        CLAUDE.format("twice"),
        make_file(*BASE, "model: opus", "model: haiku"),
        expected="5: warning: appears twice",
    ),
    Sample(
        CLAUDE.format("wordy"),
        make_file("name: wordy", "description: " + "w" * 3_000),
        expected="3: warning: 2,000 are used",
    ),
    Sample(
        CLAUDE.format("bad-turns"),
        make_file(*BASE, "maxTurns: many"),
        False,
        "4: error: maxTurns is not a whole number",
    ),
    Sample(
        CLAUDE.format("no-turns"),
        make_file(*BASE, "maxTurns: 0"),
        False,
        "4: error: maxTurns is not a whole number of at least 1",
    ),
    Sample(
        CLAUDE.format("bad-model"),
        make_file(*BASE, "model: [a, b]"),
        expected="4: warning: model is not a text",
    ),
    Sample(
        CLAUDE.format("bad-skill"),
        make_file(*BASE, "skills: [nothing]"),
        expected="4: warning: unknown skill 'nothing'",
    ),
    Sample(
        CLAUDE.format("tagged"),
        make_file(*BASE, "color: !!python/object:os.system ls"),
        expected="4: note: 'color'",
    ),
    Sample(
        ".gemini/agents/hot.md",
        make_file("name: hot", "description: H.", "temperature: 9"),
        expected="4: warning: number from 0 to 2",
    ),
    Sample(
        ".gemini/agents/servers.md",
        make_file("name: servers", "description: S.", "mcp_servers: {db: 5}"),
        expected="4: warning: mcp_servers db is no map of settings",
    ),
    Sample(
        ".opencode/agents/ask.md",
        make_file("description: A.", "permission:", "  bash: ask"),
        expected="3: note: the session decides when to ask",
    ),
    Sample(
        ".opencode/agents/part.md",
        make_file("description: A.", "permission:", "  bash: {'git *': allow, '*': deny}"),
        expected="3: warning: is not supported",
    ),
    Sample(
        ".opencode/agents/but.md",
        make_file("description: A.", "permission:", "  bash: {'*': ask, 'rm *': deny}"),
        expected="3: note: to ask",
    ),
    Sample(
        ".opencode/agents/provider.md",
        make_file("description: A.", "reasoningEffort: high"),
        expected="3: warning: unknown key",
    ),
    Sample(
        ".codex/agents/nick.toml",
        'name="n"\ndescription="d"\ndeveloper_instructions="x"\nnickname_candidates=["a"]\n',
        expected="4: note: nickname",
    ),
    Sample(
        ".qwen/agents/more.md",
        make_file(*BASE, "runConfig:", "  max_hops: 2"),
        expected="4: warning: unknown key 'max_hops'",
    ),
    Sample(
        ".agents/agents/context-wrong.md",
        make_file(*BASE, "context: some"),
        expected="4: warning: 'some' is not one of",
    ),
    Sample(
        ".agents/agents/outputs-wrong.md",
        make_file(*BASE, "outputs: {n: 3}"),
        expected="4: warning: neither a description nor a JSON Schema",
    ),
    Sample(
        ".agents/agents/far.md",
        make_file(*BASE, "outputs: {n: {$ref: 'http://127.0.0.1:1/x'}}"),
        expected="4: warning: not a JSON Schema",
    ),
    Sample(
        ".agents/agents/passwd.md",
        make_file(*BASE, "outputs: {n: {$ref: 'file:///etc/passwd'}}"),
        expected="4: warning: Retrieval is disabled",
    ),
    Sample(
        ".agents/agents/outputs-schema.md",
        make_file(*BASE, "outputs: {n: {type: nothing}}"),
        expected="4: warning: n is not a JSON Schema",
    ),
]

_BROKEN: list[Sample] = [
    Sample(CLAUDE.format("README"), "# Our agents\n\nRead me.\n", False, "1: note: documentation"),
    Sample(CLAUDE.format("empty"), "", False, "1: note: documentation"),
    Sample(
        CLAUDE.format("endless"),
        "---\nname: x\ndescription: y\n",
        False,
        "1: error: no closing line",
    ),
    Sample(
        CLAUDE.format("nameless"), make_file("description: Reviews."), False, "1: error: no name"
    ),
    Sample(CLAUDE.format("indescribable"), make_file("name: x"), False, "1: error: no description"),
    Sample(
        CLAUDE.format("speechless"), make_file(*BASE, body=""), False, "5: error: no instructions"
    ),
    Sample(
        CLAUDE.format("list"), make_file("- name", "- description"), False, "2: error: key: value"
    ),
    Sample(CLAUDE.format("text"), make_file("just words"), False, "2: error: key: value"),
    Sample(CLAUDE.format("nothing"), make_file(""), False, "1: error: no name"),
    Sample(
        CLAUDE.format("tab"), make_file("name: x", "\tdescription: y"), False, "3: error: not YAML"
    ),
    Sample(
        CLAUDE.format("open-quote"),
        make_file('name: "x', "description: y"),
        False,
        "error: not YAML",
    ),
    Sample(CLAUDE.format("open-list"), make_file(*BASE, "tools: [Read"), False, "error: not YAML"),
    Sample(
        CLAUDE.format("alias"),
        make_file("name: &a x", "description: *a"),
        False,
        "3: error: aliases",
    ),
    Sample(
        CLAUDE.format("bomb"),
        make_file("a: &a [x,x]", "b: &b [*a,*a,*a]", "c: [*b,*b,*b]"),
        False,
        "3: error: aliases",
    ),
    Sample(CLAUDE.format("loop"), make_file("a: &a [*a]"), False, "2: error: aliases"),
    Sample(
        CLAUDE.format("nested"), make_file("a: " + "[" * 500 + "]" * 500), False, "2: error: levels"
    ),
    Sample(CLAUDE.format("abyss"), make_file("a: " + "[" * 30_000), False, "2: error: "),
    Sample(CLAUDE.format("braces"), make_file("a: " + "{b: " * 15_000), False, "2: error: "),
    Sample(
        CLAUDE.format("complex-key"),
        make_file("? [a, b]", ": c"),
        False,
        "2: error: a key is not a text",
    ),
    Sample(CLAUDE.format("long-head"), make_file("a: " + "x" * 70_000), False, "2: error: 65,536"),
    Sample(
        CLAUDE.format("huge"),
        make_file(*BASE, body="x" * 1_100_000),
        False,
        "1: error: larger than",
    ),
    Sample(CLAUDE.format("binary"), b"---\nname: x\n\0\0\n---\n", False, "3: error: binary"),
    Sample(
        CLAUDE.format("latin"),
        "---\nname: x\ndescription: caf\u00e9\n---\nx".encode("latin-1"),
        False,
        "3: error: not UTF-8",
    ),
    Sample(
        CLAUDE.format("control"),
        make_file("name: \x07", "description: y"),
        False,
        "error: not YAML",
    ),
    Sample(
        CLAUDE.format("unspeakable"),
        make_file("name: '!!!'", "description: y"),
        False,
        "2: warning: no letter; 1: error: no name",
    ),
    Sample(
        CLAUDE.format("number"),
        make_file("name: 5", "description: y"),
        False,
        "2: warning: name is not a text; 1: error: no name",
    ),
    Sample(CLAUDE.format("null"), make_file("name: ~", "description:"), False, "1: error: no name"),
    Sample(
        CLAUDE.format("tools-number"),
        make_file(*BASE, "tools: 5"),
        False,
        "4: error: tools is not a list of names",
    ),
    Sample(
        CLAUDE.format("tools-nested"),
        make_file(*BASE, "tools: [[Read]]"),
        False,
        "4: error: tools is not a list of names",
    ),
    Sample(
        CLAUDE.format("tools-nobody"),
        make_file(*BASE, "tools: Fly, Swim"),
        False,
        "4: error: names no tool; 4: warning: 'Fly'",
    ),
    Sample(
        CLAUDE.format("strange-mode"),
        make_file(*BASE, "permissionMode: silent"),
        False,
        "4: error: 'silent' is not one of",
    ),
    Sample(
        CLAUDE.format("disallowed-map"),
        make_file(*BASE, "disallowedTools: {a: b}"),
        False,
        "4: error: disallowedTools",
    ),
    Sample(
        ".gemini/agents/remote.md",
        make_file("name: r", "description: R.", "kind: remote"),
        False,
        "1: note: are not supported",
    ),
    Sample(".gemini/agents/noname.md", make_file("description: R."), False, "1: error: no name"),
    Sample(
        ".opencode/agents/off.md",
        make_file("description: O.", "disable: true"),
        False,
        "1: note: disabled",
    ),
    Sample(
        ".opencode/agents/permission.md",
        make_file("description: O.", "permission: maybe"),
        False,
        "3: error: permission is not a map",
    ),
    Sample(
        ".opencode/agents/verdict.md",
        make_file("description: O.", "permission: {edit: never}"),
        False,
        "3: error: 'never' is not one of",
    ),
    Sample(
        ".opencode/agents/toolmap.md",
        make_file("description: O.", "tools: {edit: 1}"),
        False,
        "3: error: true and false",
    ),
    Sample(
        ".codex/agents/broken.toml", 'name = "x"\ndescription = \n', False, "2: error: not TOML"
    ),
    Sample(
        ".codex/agents/mute.toml",
        'name = "x"\ndescription = "y"\n',
        False,
        "1: error: no instructions",
    ),
    Sample(
        ".codex/agents/sandbox.toml",
        'name="x"\ndescription="y"\ndeveloper_instructions="z"\nsandbox_mode="soft"\n',
        False,
        "4: error: 'soft'",
    ),
    Sample(".codex/agents/deep.toml", "a = " + "[" * 20_000, False, "1: error: not TOML"),
    Sample(
        ".qwen/agents/config.md",
        make_file("name: q", "runConfig: 5"),
        False,
        "3: error: runConfig is not a map; 1: error: no description",
    ),
    Sample(".goose/agents/none.md", "no head here", False, "1: note: documentation"),
    Sample(
        ".agents/agents/budget-wrong.md",
        make_file(*BASE, "budget: {turns: lots}"),
        False,
        "4: error: budget turns",
    ),
    Sample(
        ".agents/agents/budget-key.md",
        make_file(*BASE, "budget: {euros: 3}"),
        False,
        "4: error: euros is unknown",
    ),
    Sample(
        ".agents/agents/budget-list.md",
        make_file(*BASE, "budget: [3]"),
        False,
        "4: error: budget is not a map",
    ),
]

_SKILLS: list[Sample] = [
    Sample(".agents/skills/pdf/SKILL.md", make_file("name: pdf", "description: Fills PDFs.")),
    Sample(".claude/skills/deep/er/SKILL.md", make_file("name: er", "description: Found below.")),
    Sample(
        ".agents/skills/full/SKILL.md",
        make_file(
            "name: full",
            "description: F.",
            "license: MIT",
            "compatibility: any",
            "metadata: {a: b}",
        ),
    ),
    Sample(
        ".agents/skills/tools/SKILL.md",
        make_file("name: tools", "description: F.", "allowed-tools: Read"),
        expected="4: note: 'allowed-tools'",
    ),
    Sample(
        ".agents/skills/quiet/SKILL.md",
        make_file("name: quiet", "description: Q.", "disable-model-invocation: true"),
    ),
    Sample(
        ".agents/skills/when/SKILL.md",
        make_file("name: when", "description: W.", "when_to_use: On Mondays."),
    ),
    Sample(
        ".agents/skills/fork/SKILL.md",
        make_file("name: fork", "description: F.", "context: fork"),
        expected="4: note: 'context'",
    ),
    Sample(
        ".agents/skills/other/SKILL.md",
        make_file("name: another", "description: A."),
        expected="2: warning: differs from its folder's",
    ),
    Sample(
        ".agents/skills/caps/SKILL.md",
        make_file("name: Caps Lock", "description: C."),
        expected="2: warning: hyphens",
    ),
    Sample(
        ".agents/skills/double/SKILL.md",
        make_file("name: double--x", "description: C."),
        expected="2: warning: hyphens",
    ),
    Sample(
        ".agents/skills/nameless/SKILL.md",
        make_file("description: N."),
        expected="1: warning: no name",
    ),
    Sample(
        ".agents/skills/number/SKILL.md",
        make_file("name: 5", "description: N."),
        expected="2: warning: name is not a text",
    ),
    Sample(
        ".agents/skills/wordy/SKILL.md",
        make_file("name: wordy", "description: " + "w" * 2_000),
        expected="3: warning: 2,000 characters",
    ),
    Sample(
        ".agents/skills/picky/SKILL.md",
        make_file("name: picky", "description: P.", "compatibility: " + "c" * 600),
        expected="4: warning: 500",
    ),
    Sample(
        ".agents/skills/meta/SKILL.md",
        make_file("name: meta", "description: M.", "metadata: 3"),
        expected="4: warning: metadata is not a map",
    ),
    Sample(
        ".agents/skills/meta2/SKILL.md",
        make_file("name: meta2", "description: M.", "metadata: {v: 3}"),
        expected="4: warning: map of texts",
    ),
    Sample(
        ".agents/skills/free/SKILL.md",
        make_file("name: free", "description: F.", "license: [MIT]"),
        expected="4: warning: license is not a text",
    ),
    Sample(
        ".agents/skills/odd/SKILL.md",
        make_file("name: odd", "description: O.", "mood: good"),
        expected="4: warning: unknown key 'mood'",
    ),
    Sample(
        ".agents/skills/colon/SKILL.md",
        make_file("name: colon", "description: Use: now"),
        expected="3: warning: quotes",
    ),
    Sample(
        ".agents/skills/shell/SKILL.md",
        make_file("name: shell", "description: S.", body="a\n!`date` now"),
        expected="6: note: are run only when the user calls",
    ),
    Sample(
        ".agents/skills/mute/SKILL.md",
        make_file("name: mute"),
        expected="1: warning: no description: the first line",
    ),
    Sample(
        ".agents/skills/blank/SKILL.md",
        make_file("name: blank", "description: ''"),
        expected="3: warning: no description: the first line",
    ),
    Sample(
        ".agents/skills/void/SKILL.md",
        make_file("name: void", body=""),
        False,
        "1: error: no description",
    ),
    Sample(".agents/skills/headless/SKILL.md", "# Skill\n", expected="1: warning: no frontmatter"),
    Sample(".agents/skills/empty/SKILL.md", "", False, "1: error: the file is empty"),
    Sample(
        ".claude/skills/tool-list/SKILL.md",
        make_file(
            "name: tool-list", "description: T.", "allowed-tools:", "  - Read", "  - Bash(git *)"
        ),
        expected="4: note: 'allowed-tools' counts only when the user calls",
    ),
    Sample(
        ".agents/skills/endless/SKILL.md",
        "---\nname: endless\n",
        False,
        "1: error: no closing line",
    ),
    Sample(".agents/skills/binary/SKILL.md", b"\x7fELF\0\0", False, "1: error: binary"),
    Sample(
        ".agents/skills/broken/SKILL.md",
        make_file("name: [", "description: x"),
        False,
        "error: not YAML",
    ),
]

AGENTS = [*_GOOD, *_NOTED, *_BROKEN]
SKILLS = _SKILLS
