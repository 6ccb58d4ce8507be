"""Journals: check, repair, read-only disks, and the list of sessions to resume."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from mudroom.testing.model_server import ModelServer

from .conftest import Mudroom
from .course import MODEL


async def _run_prompts(mudroom: Mudroom, *prompts: str) -> Path:
    async with ModelServer(lambda request: f"answer {request.turn}") as server:
        for prompt in prompts:
            assert (await mudroom("-p", prompt, *MODEL, url=server.url)).code == 0
    session = json.loads((await mudroom("runs", "--json")).out)[0]["id"]
    return Path(mudroom.home, "sessions", f"{session}.db")


async def test_s6_damage_is_an_error_and_a_repaired_session_continues(mudroom: Mudroom) -> None:
    journal = await _run_prompts(mudroom, "first")
    assert (await mudroom("journal", "check", journal.stem)).out.endswith("all intact\n")
    connection = sqlite3.connect(journal)
    connection.execute("UPDATE events SET body = X'00' WHERE seq = 3")
    connection.commit()
    connection.close()
    shown = await mudroom("show", "last")
    assert shown.code == 1 and "record 3 is damaged" in shown.err and "journal repair" in shown.err
    doctor = await mudroom("doctor")
    assert doctor.code == 1 and "record 3 is damaged" in doctor.out
    checked = await mudroom("journal", "check", journal.stem[:8])
    assert checked.code == 1 and "lost: 3" in checked.out
    repaired = await mudroom("journal", "repair", journal.stem[:8])
    assert repaired.code == 0 and "lost: 3" in repaired.out and f"{journal}.damaged" in repaired.out
    assert "nothing to repair" in (await mudroom("journal", "repair", journal.stem)).out
    async with ModelServer(lambda request: "and on") as server:
        done = await mudroom("-c", "-p", "next", *MODEL, url=server.url)
        assert done.out == "and on\n"
        assert f"mudroom: continuing {journal.stem[:8]} (first)\n" in done.err
        quiet = await mudroom("-q", "-c", "-p", "next", *MODEL, url=server.url)
        assert "continuing" not in quiet.err
    last = await mudroom("show", "last")
    assert "first" in last.out
    assert (await mudroom("show")).out == last.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
async def test_a_session_on_a_read_only_disk_can_be_read_but_not_continued(
    mudroom: Mudroom,
) -> None:
    journal = await _run_prompts(mudroom, "first")
    journal.chmod(0o400)
    journal.parent.chmod(0o500)
    try:
        assert (await mudroom("show", "last")).code == 0
        assert (await mudroom("resume")).out == "answer 0\n"
        refused = await mudroom("-c", "-p", "x", *MODEL)
        assert refused.code == 1 and "MUDROOM_HOME" in refused.err
    finally:
        journal.parent.chmod(0o700)


async def test_resume_without_id_asks_for_a_session(mudroom: Mudroom) -> None:
    await _run_prompts(mudroom, "the older one", "the newer one")
    async with (
        ModelServer(lambda request: f"continued after {request.turn}") as server,
        mudroom.start_at_terminal("-p", "next", *MODEL, "--resume", url=server.url) as terminal,
    ):
        await terminal.expect("1  ")
        await terminal.expect("the newer one")
        await terminal.expect("the older one")
        await terminal.expect("Which session?")
        terminal.type("2\n")
        await terminal.expect("continued after 1")
        assert await terminal.end() == 0
    listed = {
        item["prompt"]: item["prompts"]
        for item in json.loads((await mudroom("runs", "--json")).out)
    }
    assert listed == {"the older one": 2, "the newer one": 1}
