"""Skills.

The catalogue in the tool's text, the body when asked for, files on demand; nothing of a skill is
ever run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.agent_files.corpus import make_file

from mudroom import Integrations, Session
from mudroom._adapters.agent_files import load_agent_files, load_skill
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._session.agent_catalog import KNOWN_TOOLS
from mudroom._session.open_adapters import collect_tools

SKILL = make_file(
    "name: pdf",
    "description: Fills PDF forms.",
    body="Run ${CLAUDE_SKILL_DIR}/fill.py. See guide.md.",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / ".claude" / "skills" / "pdf"
    (folder / "refs").mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / "guide.md").write_text("GUIDE-TEXT")
    (folder / "refs" / "more.md").write_text("more")
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path / "project"


def open_session(project: Path, model: ScriptedModel, **more: Any) -> Session:
    environ = {"HOME": str(project.parent / "home")}
    return Session(
        model=model,
        cwd=str(project),
        journal="memory",
        environ=environ,
        integrations=Integrations(agent_files=True),
        **more,
    )


async def test_a17_the_tool_lists_skills_and_loads_their_text(
    project: Path,
) -> None:
    folder = project.parent / "home" / ".claude" / "skills" / "pdf"

    def answer(request: Request) -> Answer:
        steps = [
            [call("skill", name="pdf")],
            [call("read", file_path=str(folder / "guide.md"))],
            "Done.",
        ]
        return steps[request.turn]

    model = ScriptedModel(answer)
    async with open_session(project, model) as session:
        assert "- pdf: Fills PDF forms." in session._make_scope_runtime().tools["skill"].description
        report = await session.run("Fill the form.")
    body = model.requests[1].results[0].text
    assert body.startswith('<skill_content name="pdf">')
    assert f"Run {folder}/fill.py." in body
    assert "- guide.md" in body
    assert "- refs/more.md" in body
    assert "GUIDE-TEXT" in model.requests[2].results[0].text
    assert report.failed == 0


async def test_a17_a_skills_folder_can_be_read_but_not_written(project: Path) -> None:
    path = str(project.parent / "home" / ".claude" / "skills" / "pdf" / "new.md")

    def answer(request: Request) -> Answer:
        return "Done." if request.turn else [call("write", file_path=path, content="x")]

    model = ScriptedModel(answer)
    async with open_session(project, model) as session:
        await session.run("Write there.")
    assert model.requests[1].results[0].error
    assert not Path(path).exists()


async def test_a17_the_tool_is_not_offered_where_there_are_no_skills(project: Path) -> None:
    (project.parent / "home" / ".claude" / "skills" / "pdf" / "SKILL.md").unlink()
    async with open_session(project, ScriptedModel([])) as session:
        assert "skill" not in session.tools


async def test_a17_an_unknown_skill_is_an_error_with_the_nearest(project: Path) -> None:
    def answer(request: Request) -> Answer:
        return "Done." if request.turn else [call("load_skill", skill="pfd")]

    model = ScriptedModel(answer)
    async with open_session(project, model) as session:
        await session.run("x")
    result = model.requests[1].results[0]
    assert result.error
    assert "pdf" in result.text


async def test_a17_hidden_skills_are_not_listed(project: Path) -> None:
    path = project.parent / "home" / ".claude" / "skills" / "pdf" / "SKILL.md"
    path.write_text(make_file("name: pdf", "description: d", "disable-model-invocation: true"))
    async with open_session(project, ScriptedModel([])) as session:
        assert "skill" not in session.tools


async def test_a17_an_agents_skills_are_loaded_from_the_start(project: Path) -> None:
    file = project / ".agents" / "agents" / "filler.md"
    file.parent.mkdir(parents=True)
    file.write_text(make_file("description: Fills.", "skills: [pdf]"))
    model = ScriptedModel(["Done."])
    async with open_session(project, model) as session:
        await session.task("Fill.", agent="filler")
    assert "See guide.md." in model.requests[0].system


async def test_a17_files_and_folders_below_skills_are_skills(project: Path) -> None:
    skills = project / "skills"
    (skills / "review").mkdir(parents=True)
    (skills / "review" / "SKILL.md").write_text(
        make_file("name: review", "description: Reviews code.", body="REVIEW-BODY")
    )
    (skills / "review" / "notes.md").write_text("not a skill")
    (skills / "README.md").write_text("not a skill")
    (skills / "python-testing.md").write_text(
        "# How to test Python\n\nUse pytest for $ARGUMENTS.\n"
    )
    (skills / "sql.md").write_text(
        make_file("name: sql", "description: Writes SQL.", body="SQL-BODY")
    )
    loaded = load_agent_files(str(project), user_home="", tools=KNOWN_TOOLS)
    assert {name: skill.description for name, skill in loaded.skills.items()} == {
        "python-testing": "How to test Python",
        "review": "Reviews code.",
        "sql": "Writes SQL.",
    }
    texts = {name: skill.load_text("x") for name, skill in loaded.skills.items()}
    assert texts["python-testing"] == "# How to test Python\n\nUse pytest for x.\n"
    assert "REVIEW-BODY" in texts["review"] and "SQL-BODY" in texts["sql"]
    assert loaded.skills["python-testing"].list_files() == []
    assert loaded.skills["review"].list_files() == ["notes.md"]
    (project.parent / "home" / "skills").mkdir()
    (project.parent / "home" / "skills" / "mine.md").write_text("# Mine")
    at_home = load_agent_files(
        str(project), user_home=str(project.parent / "home"), tools=KNOWN_TOOLS
    )
    assert "mine" not in at_home.skills


def test_a17_a_projects_skill_takes_precedence(project: Path) -> None:
    file = project / ".agents" / "skills" / "pdf" / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(make_file("name: pdf", "description: The project's."))
    found = load_agent_files(
        str(project), user_home=str(project.parent / "home"), tools=KNOWN_TOOLS
    )
    assert found.skills["pdf"].description == "The project's."
    assert [finding.text for finding in found.diagnostics if str(file) in finding.text]


@pytest.mark.parametrize(
    ("body", "arguments", "wanted"),
    [
        ("Do $ARGUMENTS.", "a b", "Do a b."),
        ("Do $ARGUMENTS.", "${CLAUDE_SKILL_DIR} $0", "Do ${CLAUDE_SKILL_DIR} $0."),
        ("Costs $12.50 or !`rm -rf /`", "", "Costs $12.50 or !`rm -rf /`"),
    ],
)
def test_a17_placeholders_are_filled_once_and_nothing_is_run(
    tmp_path: Path, body: str, arguments: str, wanted: str
) -> None:
    path = tmp_path / "s" / "SKILL.md"
    path.parent.mkdir()
    path.write_text(make_file("name: s", "description: d", body=body))
    skill, _ = load_skill(str(path))
    assert skill is not None
    assert skill.load_text(arguments) == wanted


def test_a17_a_removed_skill_has_an_empty_text(tmp_path: Path) -> None:
    path = tmp_path / "s" / "SKILL.md"
    path.parent.mkdir()
    path.write_text(make_file("name: s", "description: d"))
    skill, _ = load_skill(str(path))
    path.unlink()
    assert skill is not None
    assert skill.load_text() == ""


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    body=st.text(alphabet="${}CLAUDE_SKILL_DIR ARGUMENTS[]0123456789!`\n", max_size=80),
    arguments=st.text(max_size=20),
)
def test_a17_any_body_and_any_arguments_are_accepted(
    tmp_path: Path, body: str, arguments: str
) -> None:
    path = tmp_path / "s" / "SKILL.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(make_file("name: s", "description: d", body=body), newline="")
    skill, _ = load_skill(str(path))
    assert skill is not None
    assert isinstance(skill.load_text(arguments), str)


def test_a17_a_thousand_skills_do_not_fill_the_context(tmp_path: Path) -> None:
    path = tmp_path / "s" / "SKILL.md"
    path.parent.mkdir()
    path.write_text(make_file("name: s", "description: " + "word " * 200))
    skill, _ = load_skill(str(path))
    assert skill is not None
    skills = {f"s{n}": replace(skill, name=f"s{n}") for n in range(1_000)}
    tool = collect_tools((), {}, skills, ask=False)["skill"]
    assert len(tool.description) < 1_000 * len("s100, ") + 500
