"""Recorded sessions are listed and shown; doctor and models print no key."""

import json

from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom
from .course import MODEL, make_call


def answer_as_family(request: ServerRequest) -> ServerAnswer:
    if "task" in request.tools:
        task = make_call("task", prompt="CHILD look", description="look around")
        return "the end" if request.turn else [task]
    return "seen \x1b[31mred" if request.turn else [make_call("read", file_path="f0.txt")]


async def test_sessions_are_listed_newest_first_and_shown_by_id_prefix_or_last(
    mudroom: Mudroom,
) -> None:
    async with ModelServer(answer_as_family) as server:
        await mudroom("-p", "first prompt", *MODEL, url=server.url)
        await mudroom("-p", "第二个问题", *MODEL, url=server.url)
    listed = json.loads((await mudroom("runs", "--json")).out)
    assert [(item["prompt"], item["reason"], item["children"]) for item in listed] == [
        ("第二个问题", "GOAL", 1),
        ("first prompt", "GOAL", 1),
    ]
    table = (await mudroom("runs")).out.splitlines()
    assert len(table) == 2 and "project: 第二个问题" in table[0] and "1 child" in table[1]
    assert len((await mudroom("runs", "--limit", "1")).out.splitlines()) == 1

    shown = await mudroom("show", listed[1]["id"][:8])
    assert shown.code == 0 and all(
        words in shown.out
        for words in ("first prompt", "look around", "1.1.1", "1 child read", "the end")
    )
    assert "\x1b" not in shown.out and "line of mud" not in shown.out
    child = await mudroom("show", "last", "--run", "1.1.1")
    assert "CHILD look" in child.out and "line of mud" in child.out and "seen red" in child.out


async def test_last_is_the_last_session_of_the_folder_in_every_command(mudroom: Mudroom) -> None:
    elsewhere = mudroom.project.parent / "elsewhere"
    elsewhere.mkdir()
    async with ModelServer(answer_as_family) as server:
        await mudroom("-p", "asked here", *MODEL, url=server.url)
        await mudroom("-p", "asked elsewhere", *MODEL, "-C", str(elsewhere), url=server.url)
    for command in (
        ("show", "last"),
        ("export", "last", "--format", "fixture"),
        ("view", "last", "--export", "-"),
    ):
        for folder, own, other in (
            (".", "here", "elsewhere"),
            (str(elsewhere), "elsewhere", "here"),
        ):
            shown = await mudroom("-C", folder, *command)
            assert shown.code == 0, shown.err
            assert f"asked {own}" in shown.out and f"asked {other}" not in shown.out


async def test_doctor_checks_everything_and_prints_no_key(mudroom: Mudroom) -> None:
    done = await mudroom("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.out)["checks"]}
    names = "mudroom python platform settings home journals models sandbox rg git"
    assert set(names.split()) <= set(checks)
    assert done.code == 0 and "ANTHROPIC_API_KEY" in done.out and "sk-planted" not in done.out
    plain = await mudroom("doctor")
    assert plain.code == 0 and all(name in plain.out for name in checks)


async def test_doctor_reports_a_wrong_setting_and_a_home_that_cannot_be_written(
    mudroom: Mudroom,
) -> None:
    (mudroom.project / ".mudroom.toml").write_text('model = "x"\n')
    mudroom.home.write_text("in the way")
    done = await mudroom("doctor")
    assert done.code == 1 and ".mudroom.toml:1" in done.out and "MUDROOM_HOME" in done.out


async def test_models_lists_providers_and_their_keys(mudroom: Mudroom) -> None:
    done = await mudroom("models", "--json")
    rows = {row["provider"]: row for row in json.loads(done.out)["providers"]}
    assert rows["anthropic"]["found"] and not rows["openai"]["found"] and rows["offline"]["found"]
    assert "sk-planted" not in done.out
    plain = await mudroom("models", env={"ANTHROPIC_API_KEY": ""})
    assert plain.code == 0 and "OPENAI_API_KEY" in plain.out and "offline" in plain.out
    assert "set OLLAMA_HOST " in plain.out, "the variable that the documentation names"
    *_, last = plain.out.splitlines()
    assert plain.out.count("bedrock") == 1 and "mudroom[providers]" in last and "bedrock" in last
