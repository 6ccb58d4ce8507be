"""Texts of commands and skills: arguments, shell commands, frontmatter."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mudroom._adapters.agent_files import check_commands, load_commands
from mudroom._adapters.agent_files.commands import find_by_name
from mudroom._adapters.agent_files.prompt_template import PromptTemplate, ShellText, load_template


def fill(text: str, arguments: str, **fields: object) -> str:
    template = PromptTemplate(text=text, folder="/files", **fields)  # pyright: ignore
    pieces = template.fill(arguments)
    return "".join(f"<{each.command}>" if isinstance(each, ShellText) else each for each in pieces)


@pytest.mark.parametrize(
    ("text", "arguments", "filled"),
    [
        ("$ARGUMENTS", "a b", "a b"),
        ("$ARGUMENTS and $ARGUMENTS", "a", "a and a"),
        ("$0", "a", "a"),
        ("$0-$1-$2", "a b c", "a-b-c"),
        ("$10", "a b", "$10\n\nARGUMENTS: a b"),
        ("$ARGUMENTS[0]", "a b", "a"),
        ("$ARGUMENTS[12]", " ".join("abcdefghijklm"), "m"),
        ("$0", '"a b" c', "a b"),
        ("$0", r"a\ b c", "a b"),
        ("$ARGUMENTS", '"a b" c', '"a b" c'),
        ("$0", "it's here", "it's"),
        ("$1", '"open quote', "quote"),
        ("costs $5.50", "", "costs $5.50"),
        ("costs $100", "a", "costs $100\n\nARGUMENTS: a"),
        ("$$0", "a", "$a"),
        (r"\$ARGUMENTS is a name, $0 a value", "a", "$ARGUMENTS is a name, a a value"),
        ("no place", "a b", "no place\n\nARGUMENTS: a b"),
        ("no place", "", "no place"),
        ("${CLAUDE_SKILL_DIR}/x.py", "", "/files/x.py"),
        ("$ARGUMENTS", "$0 $ARGUMENTS", "$0 $ARGUMENTS"),
        ("$ARGUMENTS", "!`rm x`", "!`rm x`"),
        ("!`git diff $0`", "main", "<git diff main>"),
        ("code `!`date``", "", "code `!`date``"),
        ("a!`date`", "", "a!`date`"),
        ("!`two\nlines`", "", "!`two\nlines`"),
        ("```!\nls\npwd\n```", "", "<ls\npwd>"),
        ("```sh\nls\n```", "", "```sh\nls\n```"),
        ("none", "{0} {}", "none\n\nARGUMENTS: {0} {}"),
    ],
)
def test_arguments_are_filled_in(text: str, arguments: str, filled: str) -> None:
    assert fill(text, arguments) == filled


@pytest.mark.parametrize(
    ("text", "arguments", "filled"),
    [
        ("$issue on $branch", "42 main", "42 on main"),
        ("$issue on $branch", "42", "42 on "),
        ("$issues", "42", "$issues\n\nARGUMENTS: 42"),
        ("$branch_name, $branch", "42 main", "$branch_name, main"),
        ("$1 $issue", "42 main", "main 42"),
    ],
)
def test_named_arguments_are_filled_in(text: str, arguments: str, filled: str) -> None:
    assert fill(text, arguments, argument_names=("issue", "branch")) == filled


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("$1 then $2", "a then b"),
        ("$0 then $1", "a then b"),
        ("$ARGUMENTS[0] then $1", "a then a"),
        ("---\narguments: [x, y]\n---\n$1 $y", "b b"),
        ("plain", "plain\n\na b"),
    ],
)
def test_command_files_count_from_one_unless_they_use_zero(
    tmp_path: Path, text: str, filled: str
) -> None:
    path = tmp_path / "c.md"
    path.write_text(text)
    pieces = load_template(str(path), "", is_command=True).fill("a b")
    assert "".join(map(str, pieces)) == filled


def test_the_frontmatter_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.md"
    path.write_text(
        "---\ndescription: Does it.\nargument-hint: [file]\nallowed-tools: Bash(git *), Read\n"
        "model: haiku\ncontext: fork\nagent: explore\nuser-invocable: false\n---\nText."
    )
    template = load_template(str(path), "", is_command=True)
    assert template.description == "Does it."
    assert template.argument_hint == "[file]"
    assert template.allowed_tools == ("Bash(git *), Read",)
    assert (template.model, template.forks, template.agent) == ("haiku", True, "explore")
    assert not template.is_callable
    path.write_text("Changed, and longer than before.")
    assert load_template(str(path), "", is_command=True).description.startswith("Changed")


def test_commands_of_subfolders_have_its_name(tmp_path: Path) -> None:
    for name in ("test", "front/test", "front/deep/build", "back/deploy"):
        path = tmp_path / f".claude/commands/{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    commands = load_commands(str(tmp_path), user_home="")
    assert sorted(commands) == ["back:deploy", "front:deep:build", "front:test", "test"]
    assert find_by_name(commands, "build") == "front:deep:build"
    assert find_by_name(commands, "test") == "test"
    assert find_by_name(commands, "nothing") == ""


def test_five_hundred_commands_are_listed_from_the_cache(tmp_path: Path) -> None:
    folder = tmp_path / ".claude/commands"
    folder.mkdir(parents=True)
    for number in range(500):
        (folder / f"c{number}.md").write_text(f"---\ndescription: number {number}\n---\nText.")
    seconds: list[float] = []
    for _ in range(4):
        start = time.process_time()
        commands = load_commands(str(tmp_path), user_home="")
        assert commands["c499"].description == "number 499"
        assert len([file.description for file in commands.values()]) == 500
        seconds.append(time.process_time() - start)
    print(f"first: {seconds[0] * 1000:.0f} ms, from the cache: {min(seconds) * 1000:.1f} ms of CPU")
    # The goal is 0.02 s; a busy machine may need more.
    assert min(seconds) < 0.08


@pytest.mark.parametrize(
    ("text", "arguments", "filled"),
    [
        ("Fix {{args}} and {{args}}.", "a b", "Fix a b and a b."),
        ("Fix {{args}}.", "", "Fix ."),
        ("Fix it.", "", "Fix it."),
        ("Fix it.", "now please", "Fix it.\n\n/fix now please"),
        ("Log: !{git log -n 3}!", "", "Log: <git log -n 3>!"),
        ("!{grep {{args}} x}", "it's; rm x", "<grep 'it'\"'\"'s; rm x' x>"),
        ("!{awk '{print $1}' a} !{ls}", "", "<awk '{print $1}' a> <ls>"),
        ("open !{ls", "", "open !{ls"),
        ("Read @{docs/a.md} and @{ b.py }.", "", "Read @docs/a.md and @b.py."),
        ("{{args}}", "!{rm x} {{args}} $1", "!{rm x} {{args}} $1"),
        ("$ARGUMENTS $1 {{args}}", "a", "$ARGUMENTS $1 a"),
    ],
)
def test_a_command_of_the_gemini_cli_has_its_own_places(
    text: str, arguments: str, filled: str
) -> None:
    assert fill(text, arguments, gemini_path="/files/fix.toml") == filled


def test_commands_of_the_gemini_cli_are_read(tmp_path: Path) -> None:
    folder = tmp_path / ".gemini" / "commands"
    (folder / "git").mkdir(parents=True)
    (folder / "git" / "commit.toml").write_text(
        'description = "Write a\\ncommit"\nprompt = """\nCommit {{args}}.\n!{git diff}"""\n'
    )
    (folder / "plain.toml").write_text('prompt = "First line.\\nSecond."')
    (folder / "wrong.toml").write_text("prompt = 3")
    (folder / "broken.toml").write_text("prompt = ")
    (folder / "notes.md").write_text("No command.")
    commands = load_commands(str(tmp_path), user_home="")
    assert sorted(commands) == ["broken", "git:commit", "plain", "wrong"]
    commit = commands["git:commit"].load_template()
    assert (commit.description, commit.is_callable) == ("Write a commit", True)
    assert commit.fill("it") == ["Commit it.\n", ShellText("git diff", "!{git diff}"), ""]
    assert commands["plain"].description == "First line."
    assert [commands[name].load_template().text for name in ("wrong", "broken")] == ["", ""]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ('prompt = "Fix\n', 1, "line 1: the text has no end"),
        ('# a\nprompt = "Fix', 2, "line 2: the text has no end"),
        ('# a\nprompt = """Fix\n\n', 2, "line 2: the text has no end"),
        ("prompt = 'Fix", 1, "line 1: the text has no end"),
        ('description = "x"', 1, "the key prompt is missing"),
        ("", 1, "the key prompt is missing"),
        ("\nprompt = 3", 2, "line 2: the value of prompt is no text"),
        ('prompt = " "', 1, "line 1: the prompt is empty"),
    ],
)
def test_a_command_of_the_gemini_cli_without_a_prompt_has_the_reason(
    text: str, line: int, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / ".gemini" / "commands" / "fix.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert load_template(str(file), "", is_command=True).problem == problem
    (error,) = check_commands(str(tmp_path), user_home="")
    assert (error.path, error.line) == (str(file), line)
    assert problem.endswith(error.text)
