"""Golden journals of every record version: they open, show and resume."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from mudroom import AssistantMessage, Reason, Session
from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.journals.sqlite.repair import check_journal, repair_journal
from mudroom._adapters.journals.sqlite.schema import SCHEMA_VERSION
from mudroom._adapters.models.scripted import Request, ScriptedModel
from mudroom._cli.commands._command_line import ALL_COMMANDS
from mudroom._core.events import (
    MessageSent,
    RunFinished,
    SessionOpened,
    decode_event,
    encode_event,
)
from mudroom.errors import JournalError
from mudroom.testing.sample_events import every_event

GOLDEN = Path(__file__).with_name("golden")
VERSIONS = [2]
ID = "00000000-0000-4000-8000-000000000001"


def answer(request: Request) -> str:
    count = sum(isinstance(message, AssistantMessage) for message in request.messages)
    return f"answer {count}"


@pytest.fixture(params=VERSIONS, ids=lambda version: f"version {version}")
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "sessions"
    folder.mkdir(parents=True)
    shutil.copy(GOLDEN / f"version-{request.param}.db", folder / f"{ID}.db")
    return tmp_path / "home"


def find_journal(home: Path) -> Path:
    return home / "sessions" / f"{ID}.db"


def run_command(home: Path, *words: str) -> str:
    environ = {"MUDROOM_HOME": str(home), "HOME": str(home)}
    result = CliRunner(env=environ).invoke(ALL_COMMANDS[words[0]], words[1:])
    assert result.exception is None, result.output
    return result.output


def test_each_record_version_has_its_golden_files() -> None:
    assert VERSIONS[-1] == SCHEMA_VERSION, "scripts/golden records it"
    assert sorted(path.name for path in GOLDEN.iterdir()) == [
        f"version-{version}.{suffix}" for version in VERSIONS for suffix in ("db", "jsonl")
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_event_of_each_version_is_read(version: int) -> None:
    lines = (GOLDEN / f"version-{version}.jsonl").read_bytes().splitlines()
    assert [decode_event(line) for line in lines] == list(every_event())


def test_the_current_version_is_written_as_its_golden_file() -> None:
    lines = (GOLDEN / f"version-{SCHEMA_VERSION}.jsonl").read_bytes().splitlines()
    assert [encode_event(event) for event in every_event()] == lines


def test_a_message_without_a_kind_is_read() -> None:
    line = b'{"type":"message_sent","at":1.0,"message":{"id":"m1","text":"x","sender":"user"}}'
    event = decode_event(line)
    assert isinstance(event, MessageSent) and event.message.kind == "message"
    assert (event.message.name, event.message.approve) == ("", None)
    assert event.message.notes == ()


def test_it_opens_and_is_intact(home: Path) -> None:
    reader = open_reader(find_journal(home))
    assert reader.meta.session == ID and reader.meta.program
    assert len(list(reader.read())) > 20
    assert check_journal(reader.path).lost == ()


def test_it_is_shown(home: Path) -> None:
    output = run_command(home, "show", ID, "--no-color")
    for text in ("the first answer", "1.1.1", "2.1.1", "unfinished", "SECOND"):
        assert text in output


def test_it_is_exported(home: Path, tmp_path: Path) -> None:
    fixture = tmp_path / "fixture.jsonl"
    run_command(home, "record", str(fixture), ID[:8])
    events = [decode_event(line) for line in fixture.read_bytes().splitlines()]
    assert events == list(open_reader(find_journal(home)).read())


async def test_it_is_resumed_and_stays_readable(home: Path) -> None:
    before = list(open_reader(find_journal(home)).read())
    async with Session(
        model=ScriptedModel(answer), home=str(home), resume=ID, sandbox="off"
    ) as session:
        assert session.unfinished_runs == ("2",)
        report = await session.resume_unfinished()
        assert report is not None and report.reason is Reason.GOAL and report.calls == {"task": 1}
        assert (await session.run("THIRD")).text == "answer 4"
    events = list(open_reader(find_journal(home)).read())
    assert events[: len(before)] == before
    assert isinstance(events[len(before)], SessionOpened)
    texts = [event.report.text for event in events if isinstance(event, RunFinished)]
    assert texts == ["seen", "the first answer", "answer 1", "answer 3", "answer 4"]
    assert check_journal(find_journal(home)).lost == ()


def test_it_is_repaired(home: Path) -> None:
    path = find_journal(home)
    before = list(open_reader(path).read())
    connection = sqlite3.connect(path)
    connection.execute("UPDATE events SET crc = crc + 1 WHERE type = 'session_closed' OR seq = 3")
    connection.commit()
    connection.close()
    assert repair_journal(path, cwd="/").lost == ((3, 3),)
    events = list(open_reader(path).read())
    assert [event for event in events if event in before] == before[:2] + before[3:]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (SCHEMA_VERSION + 1, f"; this program knows {SCHEMA_VERSION}.*Use a newer mudroom"),
        (SCHEMA_VERSION - 1, "which no release of mudroom has written.*Delete"),
    ],
)
def test_another_version_is_refused_and_left_unchanged(
    home: Path, schema: int, message: str
) -> None:
    path = find_journal(home)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema}")
    connection.close()
    before = path.read_bytes()
    refused = f"schema {schema}.*{message}|schema {schema}{message}"
    with pytest.raises(JournalError, match=refused):
        open_reader(path)
    with pytest.raises(JournalError, match=refused):
        SqliteJournal.open(path, session=ID, create=False)
    assert path.read_bytes() == before
