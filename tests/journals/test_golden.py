"""The journal of every released version opens, shows and goes on."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from mudroom import AssistantMessage, Reason, Session
from mudroom._core.events import RunFinished
from mudroom._version import __version__
from mudroom.cli.commands.root import COMMANDS
from mudroom.errors import JournalNewer
from mudroom.journals.sqlite.reader import open_reader
from mudroom.journals.sqlite.repair import check_journal
from mudroom.models.scripted import Request, ScriptedModel

GOLDEN = sorted(Path(__file__).with_name("golden").glob("*.db"))
ID = "00000000-0000-4000-8000-000000000001"


def answer(request: Request) -> str:
    return f"answer {sum(isinstance(message, AssistantMessage) for message in request.messages)}"


@pytest.fixture(params=GOLDEN, ids=lambda path: path.stem)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "sessions"
    folder.mkdir(parents=True)
    shutil.copy(request.param, folder / f"{ID}.db")
    return tmp_path / "home"


def test_this_version_has_its_golden_journal() -> None:
    assert __version__ in [path.stem for path in GOLDEN], "scripts/golden records it"


def test_it_opens_and_is_whole(home: Path) -> None:
    record = open_reader(home / "sessions" / f"{ID}.db")
    assert record.meta.session == ID and record.meta.program and len(list(record.read())) > 20
    assert check_journal(record.path).lost == ()


def test_it_shows(home: Path) -> None:
    ran = CliRunner(env={"MUDROOM_HOME": str(home), "HOME": str(home)}).invoke(
        COMMANDS["show"], ["last", "--no-color"]
    )
    assert ran.exception is None, ran.output
    assert all(
        words in ran.output
        for words in ("the first answer", "1.1.1", "2.1.1", "unfinished", "SECOND")
    )


async def test_it_goes_on(home: Path) -> None:
    async with Session(
        model=ScriptedModel(answer), home=str(home), resume=ID, sandbox="off"
    ) as session:
        assert session.unfinished_runs == ("2",)
        report = await session.resume_unfinished()
        assert report is not None and report.reason is Reason.GOAL and report.calls == {"task": 1}
        assert (await session.run("THIRD")).text == "answer 4"
    events = open_reader(home / "sessions" / f"{ID}.db").read()
    told = [event.report.text for event in events if isinstance(event, RunFinished)]
    assert told == ["seen", "the first answer", "answer 1", "answer 3", "answer 4"]


def test_a_newer_schema_is_refused_politely(home: Path) -> None:
    path = home / "sessions" / f"{ID}.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(JournalNewer, match=r"schema 2.*knows 1.*Use a newer mudroom"):
        open_reader(path)
    assert path.read_bytes() == before
