"""Clearing: old results give way in batches, without a model call; the record keeps them."""

from __future__ import annotations

from pathlib import Path

from mudroom import Compaction, Reason
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.agents import Mode
from mudroom._core.events import ToolCallStarted
from mudroom._core.messages import AssistantMessage, Message
from mudroom._replay import replay
from mudroom.permissions.rules import Permissions

from .conftest import Stage, is_valid, join_request, make_reader


async def test_a_run_below_the_threshold_sends_the_same_as_without_compaction(stage: Stage) -> None:
    requests: list[list[tuple[Message, ...]]] = []
    stage.write_files(4)
    for is_automatic in (True, False):
        async with stage.open(
            make_reader(4), compaction=Compaction(automatic=is_automatic, context_window=32_000)
        ) as session:
            await session.run("Read all files.")
        requests.append([request.messages for request in stage.model.requests])
        assert not stage.clearings
    assert requests[0] == requests[1]


async def test_old_results_are_cleared_in_batches_and_the_newest_stay(stage: Stage) -> None:
    stage.write_files(20)
    async with stage.open(make_reader(20)) as session:
        report = await session.run("Read all files.")
    assert (report.reason, len(stage.model.requests)) == (Reason.GOAL, 21)
    assert not stage.compactions
    assert len(stage.clearings) >= 2
    assert all(clearing.tokens >= 4_000 for clearing in stage.clearings)
    assert all(is_valid(request.messages) for request in stage.model.requests)
    last = join_request(stage.model.requests[-1])
    assert "line of file 0 " not in last
    assert all(f"line of file {number} " in last for number in (17, 18, 19))
    (record,) = Path(stage.home, "spills", session.id).glob("1-record-*.txt")
    assert record.stat().st_mode & 0o777 == 0o600
    assert record.parent.stat().st_mode & 0o777 == 0o700
    assert "line of file 0 " in record.read_text()


async def test_a_cleared_result_names_the_call_and_a_file_that_tools_search(stage: Stage) -> None:
    stage.write_files(20)
    read = make_reader(20)
    hits: list[str] = []

    def script(request: Request) -> Answer:
        answer = read(request)
        if answer != "done":
            return answer
        if hits:
            hits.append(request.results[0].text)
            return "done"
        text = next(text for text in join_request(request).splitlines() if "[cleared" in text)
        hits.append(text)
        path = text.partition(" is in ")[2].partition("; search")[0]
        return [call("grep", pattern="line of file 0 ", path=path, output_mode="content")]

    async with stage.open(script) as session:
        await session.run("Read all files.")
    placeholder, result = hits
    assert placeholder.startswith("[cleared to save space: read 0.txt, ")
    assert "line of file 0 " in result


async def test_reports_errors_and_short_results_stay(stage: Stage) -> None:
    stage.write_files(20)
    (stage.folder / "short.txt").write_text("a short file")
    read = make_reader(18)

    def script(request: Request) -> Answer:
        if request.prompt == "CHILD":
            return f"the report {'z' * 3_000}"
        if request.turn == 0:
            return [call("task", prompt="CHILD"), call("read", file_path="short.txt")]
        if request.turn == 9:
            return [call("read", file_path="missing.txt"), call("read", file_path="2.txt")]
        return read(request)

    async with stage.open(script) as session:
        await session.run("PARENT")
    assert stage.clearings
    last = join_request(stage.model.requests[-1])
    assert "the report zzz" in last
    assert "a short file" in last
    assert "missing.txt" in last


async def test_a_clearing_is_restored_in_the_next_prompt_and_replayed(stage: Stage) -> None:
    stage.write_files(20)
    async with stage.open(make_reader(20)) as session:
        await session.run("Read all files.")
        await session.run("What did you read?")
    before = stage.model.requests[-2].messages
    assert stage.model.requests[-1].messages[: len(before)] == before
    async with stage.open(lambda request: "again", resume=session.id) as resumed:
        await resumed.run("And now?")
    assert stage.model.requests[0].messages[: len(before)] == before
    assert await replay(stage.events) == stage.events


async def test_long_arguments_of_old_writes_are_cut_to_head_and_tail(stage: Stage) -> None:
    def script(request: Request) -> Answer:
        if request.turn >= 18:
            return "done"
        content = f"head {request.turn}\n{'x' * 8_000}\ntail {request.turn}\n"
        return [call("write", file_path=f"{request.turn}.txt", content=content)]

    async with stage.open(script, permissions=Permissions(mode=Mode.ACCEPT_EDITS)) as session:
        await session.run("Write all files.")
        await session.run("What did you write?")
    assert stage.clearings and not stage.compactions
    last = stage.model.requests[-1].messages
    contents = [
        block.arguments["content"]
        for message in last
        if isinstance(message, AssistantMessage)
        for block in message.tool_calls
    ]
    first, newest = contents[0], contents[-1]
    assert first.startswith("head 0\n") and first.endswith("\ntail 0\n")
    assert "characters were cut to save space" in first and len(first) < 1_200
    assert len(newest) > 8_000
    assert stage.clearings[0].tokens >= 4_000
    assert len((stage.folder / "0.txt").read_text()) > 8_000
    async with stage.open(lambda request: "again", resume=session.id) as resumed:
        await resumed.run("And now?")
    assert stage.model.requests[0].messages[: len(last)] == last
    assert await replay(stage.events) == stage.events


async def test_results_of_repeated_calls_are_cleared_first(stage: Stage) -> None:
    stage.write_files(12, length=9_000)

    def script(request: Request) -> Answer:
        if request.turn == 5:
            (stage.folder / "2.txt").unlink()
        if request.turn >= 12:
            return "done"
        number = request.turn % 3 if request.turn < 6 else request.turn - 3
        return [call("read", file_path=f"{number}.txt")]

    async with stage.open(script) as session:
        await session.run("Read the files.")
    cleared = set(stage.clearings[0].texts)
    calls = [event.call.id for event in stage.select(ToolCallStarted)]
    assert cleared == set(calls[:2]), "the later read of 2.txt failed, so its first result stays"
