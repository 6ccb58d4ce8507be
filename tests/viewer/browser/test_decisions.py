"""Decisions about tool calls in the transcript: permissions, answers to servers, texts of hooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integrations.mcp_servers.servers import make_quick
from tests.integrations.mcp_servers.test_elicitation import FORM
from tests.viewer.sessions import SessionBuilder

from mudroom import ApprovalDecision, ApprovalRequest, Integrations, Permissions, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.events import InputAnswered
from mudroom.permissions.rules import Rule, Verdict
from mudroom.ports import HookCallback
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_events,
    turn_events,
)

from .conftest import Page
from .test_page import open_page, read_texts

RULES = (Rule(Verdict.ALLOW, "mcp__*"), Rule(Verdict.ASK, "bash"))


class Person:
    """An approver that answers one form, agrees to open no address, and keeps `rm` for itself."""

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        if request.form:
            return ApprovalDecision(True, arguments={"color": "blue"})
        if "rm" in request.arguments["command"]:
            return ApprovalDecision(False, "Keep the cache.")
        return ApprovalDecision(True)


async def add_hook_text(hook_input: dict[str, Any]) -> dict[str, Any] | None:
    """Refuse a deployment, and add a text to every other command."""
    if hook_input["hook_event_name"] == "UserPromptSubmit":
        return {"hookSpecificOutput": {"additionalContext": "It is Monday."}}
    if "deploy" in hook_input["tool_input"].get("command", ""):
        return {"decision": "block", "reason": "deploys run in CI only"}
    return {"hookSpecificOutput": {"additionalContext": "The build folder is read-only."}}


def answer(request: Request) -> Answer:
    steps: list[Answer] = [
        [call("mcp_find", query="ask the user")],
        [
            call("mcp_call", tool="mcp__quick__ask", arguments={}),
            call("bash", command="rm -rf .cache"),
        ],
        [call("bash", command="echo allowed"), call("bash", command="make deploy")],
        "done",
    ]
    return steps[request.turn]


async def record(folder: Path) -> SessionBuilder:
    journal = MemoryJournal()
    hooks = {
        "PreToolUse": [HookCallback(add_hook_text, matcher="Bash")],
        "UserPromptSubmit": [HookCallback(add_hook_text)],
    }
    server = make_quick(env={"ASK": json.dumps(FORM)})
    async with Session(
        model=ScriptedModel(answer),
        cwd=str(folder),
        home=str(folder.parent / "home"),
        environ={},
        journal=journal,
        sandbox="off",
        integrations=Integrations(mcp_servers=[server], hooks=hooks),
        approver=Person(),
        permissions=Permissions(rules=RULES),
    ) as session:
        await session.run("Release it.")
    return SessionBuilder(session=session.id, events=list(journal.events))


async def test_a_transcript_shows_who_decided_what_about_each_call(
    page: Page, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    script = await record(tmp_path / "work")
    await page.set_size(1440, 2400)  # all cards are in the window
    async with open_page(page, script, "&run=1"):
        cards = "[...document.querySelectorAll('.call')].map(card => [...card.querySelectorAll("
        lines = await page.run(f"{cards}'.decision')].map(each => each.innerText))")
        lines = lines[1:]
        assert lines[0] == ["quick asked\nWhich color?", "answered"]
        assert lines[1] == [
            "asked, denied\nKeep the cache.; a rule says ask; rule: ask bash; in: rm -rf .cache"
        ]
        assert lines[2][0].startswith("asked, allowed\n")
        assert lines[3] == ["denied\ndeploys run in CI only; hook:PreToolUse function"]
        values = await page.run(f"{cards}'.decisions dl > *')].map(each => each.textContent))")
        assert values == [[], ["color", "blue"], [], [], []]
        notices = await page.run(f"{cards}'.notice')].map(each => each.innerText))")
        assert notices[3] == ["hook PreToolUse\nThe build folder is read-only."]
        assert (await read_texts(page, ".note-item .notice b"))[0] == "hook UserPromptSubmit"
        hits = await page.run(
            "findHits(app.fold, 'which color').hits.map(hit => hit.item.call.name)"
        )
        assert hits == ["mcp__quick__ask"]


async def test_a_refused_address_and_many_answers_are_shown(page: Page) -> None:
    block = tool_call("c1", "mcp__figma__publish", file="garden.fig")
    facts: dict[str, Any] = {"run": "1", "call_id": "c1", "name": block.name, "server": "figma"}
    started, finished = tool_call_events("1", block, "published", at=2.0)
    answered = InputAnswered(
        at=2.1, message="Which team?", allowed=True, values={"seats": 4, "teams": ["设计"]}, **facts
    )
    url = "https://example.com/login"
    declined = InputAnswered(
        at=2.2, message="Log in.", url=url, allowed=False, why="the user declined", **facts
    )
    events = [run_started("1"), *turn_events("1", block), started, answered, declined]
    events += [finished, run_finished("1")]
    async with open_page(page, SessionBuilder(events=events), "&run=1"):
        assert await read_texts(page, ".decision b") == [
            *("figma asked", "answered", "figma asked", "address", "declined")
        ]
        assert await read_texts(page, ".decisions dd") == ["4", '["设计"]']
        assert (await read_texts(page, ".decision span"))[3:] == [url, "the user declined"]
        assert await page.run("document.querySelector('.decision a') === null")
        await page.run("document.querySelector('.call > .callhead .copy').click()")
        await page.wait_until("document.querySelector('.callhead .copy.copied, .uncopied')")
