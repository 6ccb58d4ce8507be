"""First looks: names, settings, folders, records, doctor and models."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mudroom._adapters.journals.sessions import open_store
from mudroom._cli.actions.session_store import read_summaries_of_folder
from mudroom._cli.output.notices.start import OFFLINE_LINE
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom
from .course import MODEL, make_call

if TYPE_CHECKING:
    from tests.journeys.conftest import Mudroom

OFFLINE = ("--model", "offline")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--allowed-tools", "Bsh(git:*)"),
            "unknown tool 'Bsh' (--allowed-tools). Did you mean bash",
        ),
        (("--disallowed-tools", "Foo"), "unknown tool 'Foo' (--disallowed-tools). Known: bash"),
        (
            ("--agents", '{"a": {"description": "d", "prompt": "p", "tools": ["Read", "Gerp"]}}'),
            "unknown tool 'Gerp' (--agents, agent a). Did you mean grep?",
        ),
    ],
)
async def test_unknown_tools_of_flags_are_refused_with_a_suggestion(
    mudroom: Mudroom, flags: tuple[str, ...], message: str
) -> None:
    done = await mudroom("-p", "hello", *OFFLINE, *flags)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


async def test_tools_of_other_programs_are_accepted_and_named_as_not_available(
    mudroom: Mudroom,
) -> None:
    rules = "mcp__github__create_issue,NotebookEdit"
    done = await mudroom("-p", "how many lines?", *OFFLINE, "--disallowed-tools", rules)
    assert done.code == 0
    assert done.err.count("the rule has no effect, this tool is not available here: deny") == 2


async def test_untrusted_hooks_and_mcp_servers_are_counted(mudroom: Mudroom) -> None:
    (mudroom.project / ".claude").mkdir()
    (mudroom.project / ".claude" / "settings.json").write_text(
        '{"hooks": {"Stop": [{"hooks": [{"command": "x"}]}]}, "permissions": {"deny": ["Bsh"]}}'
    )
    (mudroom.project / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "b"}}}')
    start = await mudroom("-p", "how many lines?", *OFFLINE, "-o", "json")
    assert json.loads(start.out)["subtype"] == "success"
    assert start.err.count("not used: 1 MCP server and 1 hook of this folder") == 1
    assert "mudroom trust add, or --trust" in start.err
    permissions = await mudroom("permissions")
    doctor = await mudroom("doctor")
    for text in (start.err, permissions.out, doctor.out):
        assert "unknown tool 'Bsh'" in text


async def test_replay_last_plays_the_last_session_of_the_folder(mudroom: Mudroom) -> None:
    refused = await mudroom("-p", "how many lines?", "--model", "replay:last")
    assert refused.code == 2 and "no session of this folder is recorded" in refused.err
    first = await mudroom("-p", "how many lines?", *OFFLINE, "--name", "lines")
    for name in ("last", "lines"):
        again = await mudroom("-p", "how many lines?", "--model", f"replay:{name}")
        assert (again.code, again.out) == (0, first.out)


async def test_mudroom_home_holds_everything(mudroom: Mudroom) -> None:
    assert (await mudroom("config", "set", "retention_days", "30")).code == 0
    assert (await mudroom("trust", "add", ".")).code == 0
    assert (await mudroom("-p", "how many lines?", *OFFLINE)).code == 0
    names = {path.name for path in mudroom.home.iterdir()}
    assert {"config.toml", "sessions"} <= names
    assert not Path(mudroom.env["XDG_CONFIG_HOME"]).exists()
    assert not Path(mudroom.env["HOME"]).exists()


async def test_runs_of_a_folder_are_those_that_resume_offers(mudroom: Mudroom) -> None:
    elsewhere = mudroom.project.parent / "elsewhere"
    elsewhere.mkdir()
    for folder in (str(elsewhere), ".", "."):
        assert (await mudroom("-p", "how many lines?", *OFFLINE, "-C", folder)).code == 0
    listed: dict[tuple[str, ...], list[str]] = {}
    empty = mudroom.project.parent / "empty"
    empty.mkdir()
    for flags in ((), ("-C", "."), ("-C", str(elsewhere)), ("-C", str(empty))):
        done = await mudroom("runs", "--json", *flags)
        listed[flags] = [item["id"] for item in json.loads(done.out)]
    assert [len(ids) for ids in listed.values()] == [3, 2, 1, 0]
    before = await mudroom("-C", ".", "runs", "--json")
    assert [item["id"] for item in json.loads(before.out)] == listed["-C", "."]
    offered = await read_summaries_of_folder(open_store(str(mudroom.home)), str(mudroom.project))
    assert [summary.id for summary in offered] == listed["-C", "."]
    nothing = await mudroom("runs", "-C", str(empty))
    assert f"No sessions of {empty} are recorded" in nothing.out
    missing = await mudroom("runs", "-C", "none")
    assert (missing.code, missing.out) == (2, "")
    assert "no such directory (none)" in missing.err
    elsewhere.rename(mudroom.project.parent / "moved")
    deleted = await mudroom("runs", "--json", "-C", str(elsewhere))
    assert [item["id"] for item in json.loads(deleted.out)] == listed["-C", str(elsewhere)]


async def test_a_current_folder_that_is_gone_is_named_with_a_remedy(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = shlex.join([sys.executable, "-m", "mudroom"])
    command = f"cd {gone} && rmdir {gone} && {program} -p hello --model offline"
    done = await asyncio.to_thread(
        subprocess.run, ["sh", "-c", command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "mudroom: the current folder does not exist any more. "
        "Change to another folder, or name one with -C.\n"
    )


async def test_doctor_names_a_model_server_once(mudroom: Mudroom) -> None:
    done = await mudroom("doctor", env={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert done.out.count("does not answer") == 1, done.out
    assert done.out.count("OPENAI_BASE_URL") == 2, done.out  # found, and the remedy


async def test_models_shows_the_model_in_use_and_not_the_default_of_its_provider(
    mudroom: Mudroom,
) -> None:
    address = "http://127.0.0.1:1/v1"
    local = {"OPENAI_BASE_URL": address, "MUDROOM_MODEL": "openai:tiny-local"}
    done = await mudroom("models", env=local)
    rows = {line.split()[0]: line for line in done.out.splitlines()}
    assert rows["openai"].endswith(f"tiny-local  {address} does not answer"), done.out
    assert "gpt-" not in rows["openai"]
    assert rows["openai-chat"].endswith(f"  {address} does not answer"), done.out


async def test_the_offline_notice_is_printed_once_per_machine(mudroom: Mudroom) -> None:
    no_key = {"ANTHROPIC_API_KEY": ""}
    runs = [await mudroom("-p", "how many lines?", env=no_key) for _ in range(2)]
    for number, done in enumerate(runs):
        assert ("No API key and no local server found" in done.err) == (number == 0)
        assert done.err.endswith("\n" + OFFLINE_LINE + "\n") or done.err == OFFLINE_LINE + "\n"
    chosen = await mudroom("-p", "how many lines?", *OFFLINE)
    assert (chosen.out, chosen.err) == (runs[1].out, runs[1].err)
    quiet = await mudroom("-p", "how many lines?", "-q", env=no_key)
    assert (quiet.out, quiet.err) == (runs[1].out, "")
    as_json = await mudroom("-p", "how many lines?", "-o", "json", env=no_key)
    assert as_json.err == ""
    assert json.loads(as_json.out)["report"]["model"] == "offline:rules"


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
