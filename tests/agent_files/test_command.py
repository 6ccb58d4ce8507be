"""`mudroom agents`, and the flags about agents, through the real command line."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.agent_files.corpus import make_file

from mudroom import ToolCallBlock
from mudroom._cli.main import run
from mudroom._core.json_values import JsonValue
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


class Project:
    """A project folder whose command line does not see this machine's user."""

    def __init__(
        self, base: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = base / "project"
        self._capture = capture
        (self.folder / ".git").mkdir(parents=True)
        for name in {*os.environ} - {"PATH"}:
            patch.delenv(name)
        for name, folder in {"HOME": "person", "MUDROOM_HOME": "state"}.items():
            patch.setenv(name, str(base / folder))
        patch.setenv("XDG_CONFIG_HOME", str(base / "etc"))
        patch.setenv("LANG", "C.UTF-8")
        patch.setattr("sys.stdin", None)
        patch.chdir(self.folder)

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    async def __call__(self, *arguments: str, **env: str) -> Done:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            # A prompt needs the main thread of a program, for its signals.
            start = run_program if "-p" in arguments else self._run_here
            done = await asyncio.to_thread(start, arguments)
        assert "Traceback" not in done.err
        return done

    def _run_here(self, arguments: tuple[str, ...]) -> Done:
        code = run(list(arguments))
        out, err = self._capture.readouterr()
        return Done(code, out, err)


def run_program(arguments: tuple[str, ...]) -> Done:
    command = [sys.executable, "-m", "mudroom", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Project:
    return Project(tmp_path, monkeypatch, capsys)


async def test_agents_lists_agents_and_skills_with_paths(project: Project) -> None:
    path = project.write(
        ".claude/agents/r.md", make_file("name: reviewer", "description: Reviews.", "mood: good")
    )
    project.write(".agents/skills/pdf/SKILL.md", make_file("name: pdf", "description: PDFs."))
    shown = await project("agents")
    assert shown.code == 0
    for part in (
        "reviewer",
        "Reviews.",
        str(path),
        "explore",
        "plan",
        "built in",
        "skill: PDFs.",
        "1 warning: mudroom agents check",
    ):
        assert part in shown.out
    listed = json.loads((await project("agents", "list", "--json")).out)
    assert [agent["name"] for agent in listed["agents"]] == [
        "reviewer",
        "general",
        "explore",
        "plan",
    ]
    assert [skill["name"] for skill in listed["skills"]] == ["pdf"]
    assert listed["findings"][0]["line"] == 4


async def test_agents_show_prints_how_an_agent_would_run(project: Project) -> None:
    path = project.write(
        ".claude/agents/r.md",
        make_file("name: Code Reviewer", "description: R.", "tools: Read", "maxTurns: 5"),
    )
    shown = await project("agents", "show", "code_reviewer")
    assert shown.code == 0
    for part in ("code-reviewer", str(path), "read", "turns 5", "You do one thing well."):
        assert part in shown.out
    unknown = await project("agents", "show", "revewer")
    assert unknown.code == 2
    assert "unknown agent 'revewer'" in unknown.err


async def test_agents_new_writes_a_valid_file_and_overwrites_none(project: Project) -> None:
    made = await project("agents", "new", "My Helper")
    assert made.code == 0
    assert (project.folder / made.out.strip()).is_file()
    assert made.err.splitlines() == [
        "Edit its description and instructions, then:",
        "  mudroom agents check",
        '  mudroom --agent my-helper -p "..."',
    ]  # each command on a line of its own, to be copied
    checked = await project("agents", "check")
    assert checked.code == 0 and "my-helper.md:3: note: the description is" in checked.out
    assert "my-helper" in (await project("agents")).out
    again = await project("agents", "new", "my-helper")
    assert again.code == 2
    assert "exists already" in again.err


async def test_agents_check_prints_path_and_line_and_fails_on_errors(
    project: Project,
) -> None:
    project.write(".claude/agents/a.md", make_file("name: a", "description: A.", "tools: 5"))
    project.write(".claude/agents/b.md", make_file("name: b", "description: B.", "color: red"))
    command = project.write(".gemini/commands/fix.toml", 'prompt = "Fix\n')
    project.write("AGENTS.md", "x\n@../../etc/secret.md")
    everything = await project("agents", "check")
    assert everything.code == 1
    assert "a.md:4: error: tools is not a list of names" in everything.out
    assert "b.md:4: note: 'color'" in everything.out
    assert "AGENTS.md:2: warning:" in everything.out
    assert "fix.toml:1: error: the text has no end" in everything.out
    alone = await project("agents", "check", str(command))
    assert (alone.code, alone.out.count("error: the text has no end")) == (1, 1)
    one = await project("agents", "check", ".claude/agents/b.md")
    assert (one.code, "a.md" in one.out) == (0, False)
    assert (await project("agents", "check", "nowhere")).code == 2


async def test_agents_check_reads_the_keys_that_codex_declares(project: Project) -> None:
    project.write(
        ".codex/config.toml",
        '[agents.explorer]\ndescription = "Explores."\nconfig_file = "agents/explorer.toml"\n',
    )
    file = project.write(".codex/agents/explorer.toml", 'developer_instructions = "Explore."\n')
    for paths in ([], [".codex"], [str(file)]):
        done = await project("agents", "check", *paths)
        assert (done.code, done.out) == (0, "No problems found.\n")


async def test_doctor_counts_errors_and_names_the_first(project: Project) -> None:
    path = project.write(".gemini/agents/g.md", make_file("name: g"))
    shown = await project("doctor")
    assert f"1 error, the first: {path}:1: error: no description" in shown.out


async def test_agent_and_agents_choose_the_root_agent(project: Project) -> None:
    project.write(
        ".claude/agents/r.md",
        make_file("name: reviewer", "description: Reviews.", body="FROM-FILE"),
    )

    def answer(asked: ServerRequest) -> ServerAnswer:
        return str(asked.json["system"])[:200].replace("\n", " ")

    async with ModelServer(answer) as server:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        from_file = await project("-p", "x", "--agent", "Reviewer", **env)
        inline = json.dumps(
            {"poet": {"description": "Rhymes.", "prompt": "FROM-FLAG", "tools": ["Read"]}}
        )
        from_flag = await project("-p", "x", "--agents", inline, "--agent", "poet", **env)
    assert "FROM-FILE" in from_file.out
    assert "using agents of this folder: reviewer" in from_file.err
    assert "FROM-FLAG" in from_flag.out
    assert server.requests[1].tools == ["read"]
    nobody = await project("-p", "x", "--agent", "nobody")
    assert (nobody.code, "unknown agent 'nobody'" in nobody.err) == (2, True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{", "not JSON"),
        ('{"a": {"description": "d", "prompt": "p", "maxTurns": -1}}', "maxTurns"),
    ],
)
async def test_invalid_inline_agents_are_usage_errors(
    project: Project, given: str, expected: str
) -> None:
    done = await project("-p", "x", "--model", "offline", "--agents", given)
    assert done.code == 2
    assert "--agents" in done.err
    assert expected in done.err


async def test_a_key_of_an_inline_agent_that_is_not_used_is_a_notice(project: Project) -> None:
    inline = json.dumps(
        {"poet": {"description": "Rhymes.", "prompt": "p", "tols": ["Read"], "temp": 9}}
    )
    done = await project("-p", "hello", "--model", "offline", "--agents", inline)
    assert done.code == 0
    assert "agent poet: unknown key 'tols' (--agents)" in done.err
    assert "agent poet: temp is not a number from 0 to 2 (--agents)" in done.err


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array"}, []),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, False),
    ],
    ids=str,
)
async def test_json_schema_of_one_value_gives_the_value(
    schema: dict[str, JsonValue], value: JsonValue, project: Project
) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        arguments = {"emit_variable_name": "result", "emit_variable_value": value}
        return (ToolCallBlock(f"c{request.number}", request.tools[-1], arguments),)

    async with ModelServer(answer) as server:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        flags = ("-p", "Count.", "--json-schema", json.dumps(schema))
        as_json = await project(*flags, "-o", "json", **env)
        as_text = await project(*flags, **env)
    assert json.loads(as_json.out)["structured_output"] == value
    assert json.loads(as_text.out) == value


async def test_c3_json_schema_fills_structured_output(project: Project) -> None:
    def answer(asked: ServerRequest) -> ServerAnswer:
        return (
            ToolCallBlock(
                f"c{asked.number}",
                asked.tools[-1],
                {"emit_variable_name": "n", "emit_variable_value": 3},
            ),
        )

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    file = project.write("schema.json", json.dumps(schema))
    async with ModelServer(answer) as server:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        as_json = await project("-p", "Count.", "--json-schema", str(file), "-o", "json", **env)
        as_text = await project("-p", "Count.", "--json-schema", json.dumps(schema), **env)
    assert json.loads(as_json.out)["structured_output"] == {"n": 3}
    assert as_text.out == '{"n":3}\n'
    wrong = await project("-p", "Count.", "--json-schema", "nowhere.json")
    assert (wrong.code, "nowhere.json" in wrong.err) == (2, True)


async def test_agents_and_doctor_show_the_model_that_an_agent_gets(project: Project) -> None:
    project.write(
        ".claude/agents/own.md", make_file("name: own", "description: x", "model: offline")
    )
    project.write(
        ".claude/agents/keyless.md", make_file("name: keyless", "description: x", "model: groq")
    )
    await project("trust", "add")
    env = {"MUDROOM_CHILD_MODEL": "Explore=offline:rules; *=sonnet", "ANTHROPIC_API_KEY": "k"}
    listed = await project("agents", "list", "--json", **env)
    models = {row["name"]: row["child_model"] for row in json.loads(listed.out)["agents"]}
    assert models == {
        "explore": "offline:rules",
        "general": "sonnet",
        "plan": "sonnet",
        "own": "offline",
        "keyless": "sonnet",
    }
    text = await project("agents", **env)
    assert "built in, model offline:rules\n" in text.out
    shown = await project("agents", "show", "keyless", **env)
    assert "model:          sonnet\nmodel in file:  groq (no key for it)\n" in shown.out
    assert "model:        inherit\n" in (await project("agents", "show", "explore")).out
    doctor = await project("doctor", **env)
    assert "ok    child models: explore: offline:rules; all other agents: sonnet\n" in doctor.out
    assert "child models" not in (await project("doctor")).out


async def test_agents_of_an_untrusted_folder_show_the_model_that_the_session_uses(
    project: Project,
) -> None:
    project.write(
        ".claude/agents/own.md", make_file("name: own", "description: x", "model: offline")
    )
    listed = await project("agents", "list", "--json", MUDROOM_CHILD_MODEL="own=offline:rules")
    rows = {row["name"]: row for row in json.loads(listed.out)["agents"]}
    assert (rows["own"]["model"], rows["own"]["child_model"]) == ("offline", "offline:rules")
    shown = (await project("agents", "show", "own")).out
    assert "model:          inherit\nmodel in file:  offline (the folder is not trusted)\n" in shown
    assert "mode:           plan\n" in shown
    await project("trust", "add")
    assert "model:        offline\n" in (await project("agents", "show", "own")).out


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ("explore=hiaku", "hiaku cannot be used (unknown model 'hiaku')"),
    ],
)
async def test_doctor_reports_a_rule_that_cannot_be_used(
    project: Project, rules: str, error: str
) -> None:
    doctor = await project("doctor", MUDROOM_CHILD_MODEL=rules)
    assert doctor.code == 1
    assert f"FAIL  child models: {error}" in doctor.out


async def test_doctor_warns_of_a_rule_for_an_agent_of_another_folder(project: Project) -> None:
    doctor = await project("doctor", MUDROOM_CHILD_MODEL="exlore=offline; *=offline")
    assert "note  child models: $MUDROOM_CHILD_MODEL: rule not used: unknown agent" in doctor.out
    assert "Did you mean explore?" in doctor.out
    assert (await project("agents", MUDROOM_CHILD_MODEL="exlore=offline")).code == 0


async def test_json_schema_takes_json_from_the_answer_and_ends_without_it(project: Project) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    flags = ("-p", "Count.", "--json-schema", json.dumps(schema), "-o", "json")

    async def ask(answer: Callable[[ServerRequest], ServerAnswer]) -> tuple[int, dict[str, Any]]:
        async with ModelServer(answer) as server:
            env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
            done = await project(*flags, **env)
        return done.code, json.loads(done.out)

    code, result = await ask(lambda _: 'Here:\n```json\n{"n": "3"}\n```')
    assert (code, result["subtype"], result["structured_output"]) == (0, "success", {"n": 3})
    assert result["num_turns"] == 1
    code, result = await ask(lambda request: f"I have counted {request.number}.")
    assert (code, result["subtype"]) == (1, "error_max_structured_output_retries")
    assert "structured_output" not in result
    assert (result["reason"], result["num_turns"]) == ("ERROR", 6)
    assert result["errors"] == ["the model did not emit n after 5 reminders"]
