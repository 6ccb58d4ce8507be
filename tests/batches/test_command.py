"""`mudroom batch`: results, exit codes, a second run of the same command, the screen."""

from __future__ import annotations

import asyncio
import io
import os

import pytest

from mudroom._adapters.journals.sessions import open_store, read_events
from mudroom._cli.batches.batch import RECORD_TYPES, parse_key
from mudroom._cli.batches.status import BatchStatus
from mudroom._cli.output.batch_progress import BatchScreen
from mudroom.events import RunStarted

from .conftest import BatchStage


def count_runs(stage: BatchStage) -> list[str]:
    async def read() -> list[str]:
        store = open_store(str(stage.folder.parent / "home"))
        (info,) = await store.list()
        events = await read_events(store, info.id, RECORD_TYPES)
        keys = [parse_key(each.brief.key) for each in events if isinstance(each, RunStarted)]
        return [key.id for key in keys if key]

    return asyncio.run(read())


def test_each_line_has_one_result(stage: BatchStage) -> None:
    (stage.folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    question = "Which testing framework does this project use?"
    other = {"id": "c", "prompt": question, "agent": "general", "budget": {"turns": 8}}
    stage.write("hi", {"id": "b", "prompt": "hi"}, other)
    assert stage.run("--parallel", "2") == 0
    results = {each["custom_id"]: each for each in stage.read()}
    assert list(results) == ["line-1", "b", "c"]
    assert "pytest" in results["c"]["text"]
    first = results["b"]
    assert (first["reason"], first["turns"], first["run"]) == ("GOAL", 1, "2")
    assert first["text"].startswith("This is the offline model")
    assert first["usage"]["input_tokens"] > 0
    assert "3 of 3 done, 0 running" in stage.err


def test_a_setting_that_a_batch_does_not_use_is_named(
    stage: BatchStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write("hi")
    assert stage.run() == 0
    assert "is not used" not in stage.err
    monkeypatch.setenv("MUDROOM_MAX_CHILDREN", "2")
    (stage.folder / ".mudroom.toml").write_text("max_turns = 9\n")
    assert stage.run() == 0
    assert "max_children ($MUDROOM_MAX_CHILDREN) is not used by a batch: --parallel" in stage.err
    assert "max_turns (" in stage.err
    assert "budget of a line" in stage.err


def test_a_failed_line_makes_the_exit_code_1_and_retry_runs_it_again(stage: BatchStage) -> None:
    stage.write({"id": "a", "prompt": "hi"}, {"id": "b", "prompt": "what?"})
    assert stage.run() == 1
    assert stage.read_reasons() == {"a": "GOAL", "b": "ERROR"}
    assert "--retry ERROR runs the failed lines again" in stage.err
    assert stage.run() == 1
    assert count_runs(stage) == ["a", "b"], "nothing is left to run"
    assert stage.run("--retry", "error") == 1
    assert count_runs(stage) == ["a", "b", "b"]
    assert stage.read_reasons() == {"a": "GOAL", "b": "ERROR"}
    assert stage.read()[-1]["run"] == "3", "the last result counts"
    assert stage.run() == 1
    assert stage.read()[-1]["run"] == "3", "also after the next start"


def test_the_same_command_runs_new_and_changed_lines_only(stage: BatchStage) -> None:
    stage.write({"id": "a", "prompt": "hi"}, {"id": "b", "prompt": "hi"})
    assert stage.run() == 0
    stage.write(
        {"id": "c", "prompt": "hi"}, {"prompt": "hi", "id": "a"}, {"id": "b", "prompt": "x"}
    )
    assert stage.run() == 1
    assert count_runs(stage) == ["a", "b", "c", "b"]
    assert stage.read_reasons() == {"a": "GOAL", "c": "GOAL", "b": "ERROR"}


@pytest.mark.parametrize("kept", [b"", b'{"custom_id":"a","rea', b"other\n"])
def test_the_output_is_written_again_from_the_record(stage: BatchStage, kept: bytes) -> None:
    stage.write({"id": "a", "prompt": "hi"}, {"id": "b", "prompt": "hi"})
    assert stage.run() == 0
    output = stage.folder / "in.results.jsonl"
    whole = output.read_bytes()
    output.write_bytes(kept)
    assert stage.run() == 0
    assert output.read_bytes() == whole
    output.unlink()
    assert stage.run() == 0
    assert output.read_bytes() == whole
    assert count_runs(stage) == ["a", "b"]
    before = output.stat()
    assert stage.run() == 0
    assert output.stat().st_ino == before.st_ino, "an equal file stays"


def test_a_file_that_no_batch_wrote_is_not_replaced(stage: BatchStage) -> None:
    stage.write("hi")
    (stage.folder / "in.results.jsonl").write_text("mine")
    assert stage.run() == 2
    assert "no batch that is still recorded has written it" in stage.err
    assert (stage.folder / "in.results.jsonl").read_text() == "mine"


def test_the_output_can_be_sorted_and_have_the_format_of_openai(stage: BatchStage) -> None:
    stage.write(*({"id": name, "prompt": "hi"} for name in "dbca"), {"id": "e", "prompt": "what?"})
    assert stage.run("--format", "openai", "--ordered", "--out", "sorted.jsonl") == 1
    results = stage.read("sorted.jsonl")
    assert [each["custom_id"] for each in results] == ["d", "b", "c", "a", "e"]
    body = results[0]["response"]["body"]
    assert results[0]["response"]["status_code"] == 200
    assert body["choices"][0]["message"]["content"].startswith("This is the offline model")
    assert results[4]["response"] is None
    assert results[4]["error"]["code"] == "ERROR"


def test_lines_of_openai_say_which_keys_are_not_used(stage: BatchStage) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 1}
    stage.write({"custom_id": "a", "url": "/v1/chat/completions", "body": body})
    assert stage.run() == 0
    assert "body.temperature of 1 line is not used" in stage.err


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ({"prompt": "a", "agent": "exlore"}, "unknown agent 'exlore' (in.jsonl, line 2)"),
        ({"prompt": "a", "model": "nothing:x"}, "(in.jsonl, line 2)"),
        ({"prompt": "a", "idd": "b"}, "line 2: unknown key 'idd'"),
    ],
)
def test_a_wrong_line_stops_the_batch_before_its_first_run(
    stage: BatchStage, line: object, text: str
) -> None:
    stage.write("hi", line)
    assert stage.run() == 2
    assert text in stage.err
    assert not (stage.folder / "in.results.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["none.jsonl"], "no such file (none.jsonl)"),
        (["."], "this is a folder (.)"),
        (["/dev/null"], "use - for the file"),
        (["-"], "Add --out"),
        (["in.jsonl", "other.jsonl"], "a batch has one file, not 2"),
        (["in.jsonl", "--retry", "EROR"], "unknown reason 'EROR'"),
        (["in.jsonl", "--out", "none/out.jsonl"], "no such directory"),
        (["in.jsonl", "--out", "in.jsonl"], "the output would replace the input"),
        (["in.jsonl", "--parallel", "0"], "0 is not in the range"),
        (["in.jsonl", "--out", "-"], "results go to a file, not to stdout (-). Name"),
        (["in.jsonl", "--out", "a"], "this is a folder (a). Name a file for the results"),
        (["in.jsonl", "--out", "new/"], "this is a folder (new/). Name a file for the results"),
        (["in.jsonl", "--retry", ","], "no reason is named (--retry)"),
        (["in.jsonl", "--max-budget-usd", "nan"], "not nan (--max-budget-usd)"),
        (["none/in.jsonl"], "no such file (none/in.jsonl)"),
        (["status"], "no batch runs. For the status of an earlier one"),
        (["in.jsonl", "--permission-mode", "x"], "'x' is not one of 'plan'"),
        (["in.jsonl", "--json"], "--json is for mudroom batch status"),
        (["status", "--parallel", "3"], "--parallel has no effect on mudroom batch status"),
        (["status", "--out", "in.results.jsonl"], "no recorded batch has this output"),
        (["pause"], "no such file (pause)"),
        (["status", "now"], "a batch has one file, not 2"),
    ],
)
def test_wrong_usage_is_explained(stage: BatchStage, words: list[str], text: str) -> None:
    stage.write("hi")
    (stage.folder / "a").mkdir()
    assert stage.command(*words) == 2
    assert text in stage.err


@pytest.mark.parametrize("out", ["pipe", "link"])
def test_an_output_that_is_no_file_is_refused_and_stays(stage: BatchStage, out: str) -> None:
    stage.write("hi")
    pipe = stage.folder / "pipe"
    os.mkfifo(pipe)
    (stage.folder / "link").symlink_to("pipe")
    assert stage.run("--out", out) == 2
    assert f"this cannot hold results: it is no regular file ({out}). Name" in stage.err
    assert pipe.is_fifo()
    assert (stage.folder / "link").is_symlink()


def test_stdin_is_an_input(stage: BatchStage, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.TextIOWrapper(io.BytesIO(b'"hi"\n{"id": "b", "prompt": "hi"}\n'))
    monkeypatch.setattr("sys.stdin", text)
    assert stage.run("--out", "out.jsonl", file="-") == 0
    assert [each["custom_id"] for each in stage.read("out.jsonl")] == ["line-1", "b"]
    assert not list((stage.folder.parent / "home").rglob("*.jsonl")), "no copy is left"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'"hi"\n7\n')))
    assert stage.run("--out", "wrong.jsonl", file="-") == 2
    assert "stdin has wrong lines:\n  line 2: neither an object nor a text" in stage.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_cannot_be_read_is_wrong_usage(stage: BatchStage) -> None:
    stage.write("hi").chmod(0)
    assert stage.run() == 2
    assert "the file cannot be read: Permission denied (in.jsonl)" in stage.err


@pytest.mark.parametrize("out", ["a/../out.jsonl", "linked/out.jsonl", "alias", "./out.jsonl"])
def test_a_batch_is_the_file_that_it_writes(stage: BatchStage, out: str) -> None:
    stage.write("hi")
    folder = stage.folder
    (folder / "a").mkdir()
    (folder / "linked").symlink_to(folder, target_is_directory=True)
    (folder / "alias").symlink_to("out.jsonl")
    assert stage.run("--out", out) == 0
    assert stage.run("--out", "out.jsonl") == 0
    assert stage.run("--out", out) == 0
    assert count_runs(stage) == ["line-1"]
    assert (folder / "alias").is_symlink()
    assert not (folder / "out.jsonl").is_symlink()
    assert len(stage.read("out.jsonl")) == 1
    assert stage.command("status", "--out", out) == 0
    assert stage.out.startswith(f"{folder / 'out.jsonl'}: ended")
    other = folder / "linked" / "in.jsonl"
    assert stage.run("--out", str(other)) == 2
    assert "the output would replace the input" in stage.err


def test_an_output_that_cannot_be_written_is_named_with_what_to_do(stage: BatchStage) -> None:
    stage.write("hi")
    (stage.folder / ".in.results.jsonl.new").mkdir()
    assert stage.run() == 1
    output = stage.folder / "in.results.jsonl"
    assert f"the output cannot be written: Is a directory ({output})" in stage.err
    assert "the same command" in stage.err


def test_a_status_that_cannot_be_written_does_not_stop_the_batch(stage: BatchStage) -> None:
    stage.write("hi")
    home = stage.folder.parent / "home"
    home.mkdir()
    (home / "batches").write_text("no folder")
    assert stage.run() == 0
    assert stage.err.count("the status for mudroom batch status cannot be written: ") == 1
    assert stage.read_reasons() == {"line-1": "GOAL"}


def test_the_status_of_a_batch_that_ended_is_shown(stage: BatchStage) -> None:
    stage.write("hi")
    stage.run()
    assert stage.command("status", "--out", "in.results.jsonl") == 0
    assert stage.out == f"{stage.folder}/in.results.jsonl: ended\n1 of 1 done, 0 running\n"


STATUS = BatchStatus(
    session="s",
    output="out.jsonl",
    total=300,
    done=56,
    running=8,
    reasons={"GOAL": 52, "ERROR": 4},
    parallel=8,
    state="running",
    waits_for="parallel",
    requests=52,
    tokens=34_103,
    usd=0.11,
    usd_limit=None,
    lines_per_second=6.2,
    requests_per_second=5.8,
    seconds_left=39.0,
    seconds=9.0,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_all_numbers_are_visible_at_each_width(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("CI", raising=False)
    screen = BatchScreen(quiet=False, plain=False)
    screen.show(STATUS)
    rows = terminal.getvalue().splitlines()
    assert max(map(len, rows)) < columns
    text = " ".join(rows)
    for part in ("56 of 300 done", "4 failed", "8 running", "39 s left", "--parallel 8", "░"):
        assert part in text
    screen.clear()
    assert terminal.getvalue().endswith(f"\r\x1b[{len(rows)}A\x1b[J")
