"""Loading of output styles: names, precedence, findings; their use by an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom import Agent
from mudroom._adapters.agent_files import (
    apply_style,
    find_style,
    load_builtin_agent,
    load_output_styles,
)
from mudroom._adapters.agent_files.output_styles import MAX_CHARACTERS, OutputStyle

from ..plugin_folder import write


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path / "project"


def write_style(folder: Path, name: str, text: str) -> Path:
    return write(folder / f".claude/output-styles/{name}.md", text)


def load_findings(project: Path) -> list[str]:
    loaded = load_output_styles(str(project), user_home="")
    return [str(finding).removeprefix(f"{project}/") for finding in loaded.diagnostics]


def test_the_keys_of_a_style_are_read(project: Path) -> None:
    keys = "name: Ship log\ndescription: As in a log.\nkeep-coding-instructions: true"
    path = write_style(project, "log", f"---\n{keys}\n---\nWrite a log.\n")
    loaded = load_output_styles(str(project), user_home="")
    assert loaded.diagnostics == ()
    assert loaded.by_name == {
        "Ship log": OutputStyle(
            name="Ship log",
            description="As in a log.",
            text="Write a log.",
            path=str(path),
            keeps_instructions=True,
        )
    }


def test_a_file_without_keys_is_named_by_its_file(project: Path) -> None:
    write_style(project, "plain", "# Be plain\nNo jokes.")
    style = load_output_styles(str(project), user_home="").by_name["plain"]
    assert style.description == "Be plain"
    assert style.text == "# Be plain\nNo jokes."
    assert not style.keeps_instructions


def test_the_nearest_of_several_styles_with_one_name_counts(project: Path) -> None:
    home = project.parent / "home"
    near = write_style(project, "short", "Near.")
    far = write_style(home, "Short", "Far.")
    write_style(home, "long", "Long.")
    loaded = load_output_styles(str(project), user_home=str(home))
    assert {name: style.text for name, style in loaded.by_name.items()} == {
        "short": "Near.",
        "long": "Long.",
    }
    assert loaded.by_name["long"].is_personal and not loaded.by_name["short"].is_personal
    assert [finding.path for finding in loaded.diagnostics] == [str(far)]
    assert str(near) in loaded.diagnostics[0].text


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("---\nname: x\n---\n", "4: error: the style has no text"),
        ("---\nname: x\n", "1: error: the frontmatter that begins here has no closing line ---"),
        ("---\nname: Default\n---\nx", "2: error: the name 'Default' means no style"),
        ("---\ncolour: red\n---\nx", "2: warning: unknown key 'colour'"),
        ("---\nname: [x]\n---\nx", "2: warning: name is not a text"),
        (
            "---\nkeep-coding-instructions: often\n---\nx",
            "2: warning: keep-coding-instructions is neither true nor false; false is used",
        ),
        ("---\nforce-for-plugin: true\n---\nx", "2: note: 'force-for-plugin' has no effect here"),
        ("x" * (MAX_CHARACTERS + 1), "1: error: the style has 100,001 characters"),
        ("a\0b", "1: error: binary, not text"),
    ],
)
def test_bad_files_have_findings(project: Path, text: str, finding: str) -> None:
    write_style(project, "odd", text)
    findings = load_findings(project)
    assert len(findings) == 1
    assert findings[0].startswith(f".claude/output-styles/odd.md:{finding}")
    is_used = not load_output_styles(str(project), user_home="").by_name
    assert is_used == (" error: " in findings[0])


def test_a_style_does_not_leave_the_project(project: Path) -> None:
    secret = write(project.parent / "secret.md", "Secret.")
    link = project / ".claude/output-styles/out.md"
    link.parent.mkdir(parents=True)
    link.symlink_to(secret)
    assert not load_output_styles(str(project), user_home="").by_name
    assert "a link that leads out of" in load_findings(project)[0]


def test_a_file_name_that_is_no_text_gives_a_name_that_can_be_recorded(project: Path) -> None:
    folder = project / ".claude/output-styles"
    folder.mkdir(parents=True)
    try:
        (folder / "odd\udcff.md").write_text("Odd.")
    except (OSError, UnicodeError):
        pytest.skip("this file system refuses the name")
    (name,) = load_output_styles(str(project), user_home="").by_name
    assert name.encode()


def test_a_style_is_found_without_its_plugin_unless_two_have_the_name() -> None:
    names = ("tools:Short", "Ship log", "a:same", "b:same")
    styles = {name: OutputStyle(name, "", "x", "") for name in names}
    assert find_style(styles, "ship-LOG") is styles["Ship log"]
    assert find_style(styles, "short") is styles["tools:Short"]
    assert find_style(styles, "b:same") is styles["b:same"]
    assert find_style(styles, "same") is None
    assert find_style(styles, "shorter") is None


@pytest.mark.parametrize("keeps", [False, True])
def test_a_style_replaces_the_sentence_about_answers_unless_it_keeps_it(keeps: bool) -> None:
    main = load_builtin_agent("main")
    *others, about_answers = main.instructions.splitlines()
    assert about_answers.startswith("Answer in the user's language")
    style = OutputStyle("Short", "", "One sentence.", "", keeps_instructions=keeps)
    styled = apply_style(main, style).instructions
    assert all(line in styled for line in others)
    assert (about_answers in styled) == keeps
    assert styled.endswith("\n\n# Output style: Short\nOne sentence.")


def test_an_agent_of_the_user_keeps_its_instructions() -> None:
    agent = Agent(name="clerk", instructions="File letters.")
    styled = apply_style(agent, OutputStyle("Short", "", "One sentence.", ""))
    assert styled.instructions == "File letters.\n\n# Output style: Short\nOne sentence."
