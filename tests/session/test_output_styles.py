"""Output styles in sessions: the root agent only, no request, kept by a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mudroom import Integrations, Session
from mudroom.errors import UnknownName
from mudroom.testing import Request, ScriptedModel, call

from ..plugin_folder import write
from .conftest import IsolatedOptions

STYLE = "Answer as a limerick."


@pytest.fixture
def options(isolated: IsolatedOptions) -> dict[str, Any]:
    folder = Path(isolated["cwd"])
    write(folder / ".claude/output-styles/limerick.md", STYLE)
    write(folder / ".claude/output-styles/terse.md", "Be terse.")
    return {**isolated, "integrations": Integrations(agent_files=True)}


def choose_style(name: str, *, agent_files: bool = True, origin: str = "") -> dict[str, Any]:
    """Return the options of a session with a style, which a file may name."""
    origins = {"output_style": origin} if origin else {}
    return {
        "integrations": Integrations(agent_files=agent_files, output_style=name, origins=origins)
    }


def make_model() -> ScriptedModel:
    return ScriptedModel(lambda _: "Done.")


async def run_once(options: dict[str, Any], **more: Any) -> tuple[Request, Session]:
    """Run one prompt; return its request, and the closed session."""
    model = make_model()
    async with Session(model=model, **{**options, **more}) as session:
        assert not model.requests, "a style costs no request"
        await session.run("Hello")
    assert len(model.requests) == 1
    return model.requests[0], session


async def test_children_never_see_the_style(options: dict[str, Any]) -> None:
    def script(request: Request) -> Any:
        if "DELEGATE" in str(request.messages[-1]):
            return [call("task", agent="general", prompt="Look.", description="d")]
        return "Done."

    without, styled = ScriptedModel(script), ScriptedModel(script)
    async with Session(model=without, **options) as session:
        await session.run("DELEGATE")
        await session.task("Look.")
    async with Session(model=styled, **{**options, **choose_style("limerick")}) as session:
        assert session.output_style == "limerick"
        await session.run("DELEGATE")
        await session.task("Look.")
        assert not any(STYLE in agent.instructions for agent in session.agents)
    pairs = [(a.system, b.system) for a, b in zip(without.requests, styled.requests, strict=True)]
    assert len(pairs) == 4  # root, child, root, task
    assert [STYLE in b for _, b in pairs] == [True, False, True, False]
    assert all(a == b for a, b in (pairs[1], pairs[3])), "the bytes of a child are the same"


async def test_an_unknown_style_has_the_nearest_name(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownName, match=r"unknown output style 'limeric'.*mean limerick\?"):
        await run_once(options, **choose_style("limeric"))
    with pytest.raises(UnknownName, match="agent_files=True"):
        await run_once(options, **choose_style("limerick", agent_files=False))


async def test_an_unknown_style_of_a_settings_file_is_a_notice(options: dict[str, Any]) -> None:
    origin = "config.toml:3"
    request, session = await run_once(options, **choose_style("gone", origin=origin))
    assert "Output style" not in request.system
    notices = [line for line in map(str, session.notices) if "style" in line]
    assert len(notices) == 1
    assert notices[0].startswith("config.toml:3: output style not used: unknown output style")


async def test_a_resume_keeps_the_style(options: dict[str, Any]) -> None:
    _, first = await run_once(options, **choose_style("limerick"))
    resumed, _ = await run_once(options, resume=first.id)
    assert STYLE in resumed.system
    of_file = choose_style("terse", origin="config.toml:3")
    assert STYLE in (await run_once(options, resume=first.id, **of_file))[0].system
    forked, _ = await run_once(options, resume=first.id, fork=True)
    assert STYLE in forked.system
    changed, _ = await run_once(options, resume=first.id, **choose_style("terse"))
    assert STYLE not in changed.system and "Be terse." in changed.system
    again, _ = await run_once(options, resume=first.id)
    assert "Be terse." in again.system
    none, _ = await run_once(options, resume=first.id, **choose_style("default"))
    assert "Output style" not in none.system
    still_none, _ = await run_once(options, resume=first.id, **of_file)
    assert "Output style" not in still_none.system


async def test_a_recorded_style_whose_file_is_gone_is_a_notice(options: dict[str, Any]) -> None:
    _, first = await run_once(options, **choose_style("limerick"))
    path = Path(options["cwd"], ".claude/output-styles/limerick.md")
    path.unlink()
    request, session = await run_once(options, resume=first.id)
    assert "Output style" not in request.system
    assert any(
        "the record of this session: output style not used" in n for n in map(str, session.notices)
    )
    path.write_text(STYLE)
    assert STYLE in (await run_once(options, resume=first.id))[0].system


async def test_a_style_of_the_project_is_said(options: dict[str, Any]) -> None:
    _, session = await run_once(options, **choose_style("limerick"))
    assert any(
        line.startswith("using the output style limerick: ") for line in map(str, session.notices)
    )
