"""Bad input and failures: one line with the remedy, the right exit code, no traceback."""

import asyncio
import json
import os
import signal

import pytest
from tests.compaction.test_overflow_on_wires import LIMIT, TURNS, make_answer

from mudroom._core.messages import StopReason, TextBlock, ToolCallBlock, Usage
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.wire_formats import WireAnswer, anthropic_stream

from .conftest import Mudroom
from .course import MODEL

JSON = ("--output-format", "json")


async def test_a_prompt_of_10_mb_reaches_the_model(mudroom: Mudroom) -> None:
    async with ModelServer(lambda request: "read it") as server:
        done = await mudroom("-p", "-", *MODEL, stdin=b"x" * (10 * 1024 * 1024), url=server.url)
    assert (done.code, done.out) == (0, "read it\n")


async def test_a_refused_key_is_an_error_that_does_not_print_it(mudroom: Mudroom) -> None:
    error = {"type": "authentication_error", "message": "invalid x-api-key sk-planted-key"}
    body = json.dumps({"type": "error", "error": error}).encode()
    async with ModelServer(lambda request: Fault(status=401, body=body)) as server:
        done = await mudroom("-p", "x", *MODEL, url=server.url)
        assert (done.code, done.out, server.request_count) == (1, "", 1)
        assert "ANTHROPIC_API_KEY" in done.err
        done = await mudroom("-p", "x", *MODEL, *JSON, url=server.url)
    result = json.loads(done.out)
    assert result["is_error"] and result["subtype"] == "error_during_execution"
    assert "ANTHROPIC_API_KEY" in result["errors"][0]


async def test_an_endpoint_that_is_down_exits_with_75(mudroom: Mudroom) -> None:
    done = await mudroom("-p", "x", *MODEL, *JSON, url="http://127.0.0.1:1")
    assert done.code == 75 and "cannot reach" in done.err and "ANTHROPIC_BASE_URL" in done.err
    assert json.loads(done.out)["reason"] == "ERROR"


async def test_an_endpoint_that_answers_html_is_an_error(mudroom: Mudroom) -> None:
    async with ModelServer(
        lambda request: Fault(status=200, body=b"<html>login</html>", content_type="text/html")
    ) as server:
        done = await mudroom("-p", "x", *MODEL, url=server.url)
    assert (done.code, done.out) == (1, "") and server.url in done.err


async def test_ctrl_c_stops_the_run_and_keeps_its_report(mudroom: Mudroom) -> None:
    stuck = asyncio.Event()

    async def answer(request: ServerRequest) -> ServerAnswer:
        if "task" in request.tools:
            return [ToolCallBlock("t", "task", {"prompt": "CHILD", "description": "hang"})]
        stuck.set()
        return Fault(delay=60)

    async with ModelServer(answer) as server:
        done = await mudroom.run_and_interrupt("-p", "x", *MODEL, *JSON, url=server.url, when=stuck)
    result = json.loads(done.out)
    assert (
        done.code == 130
        and result["reason"] == "CANCELLED"
        and [r["reason"] for r in result["reports"]] == ["CANCELLED"]
    )
    listed = json.loads((await mudroom("runs", "--json")).out)
    assert [(item["reason"], item["children"]) for item in listed] == [("CANCELLED", 1)]


async def test_words_before_ctrl_c_are_printed_as_text_and_json(mudroom: Mudroom) -> None:
    whole = WireAnswer((TextBlock("Half of it"),), "m", "m1", Usage(1, 1), StopReason.END)
    body = b"".join(anthropic_stream(whole))
    end = body.index(b"event: content_block_stop")
    for flags in ((), JSON):
        stuck = asyncio.Event()

        async def answer(request: ServerRequest, stuck: asyncio.Event = stuck) -> ServerAnswer:
            asyncio.get_running_loop().call_later(0.5, stuck.set)  # when the words have arrived
            return Fault(body=body, content_type="text/event-stream", cut_after=end, end="stall")

        async with ModelServer(answer) as server:
            done = await mudroom.run_and_interrupt(
                "-p", "x", *MODEL, *flags, url=server.url, when=stuck
            )
        text = done.out.strip()
        if flags:
            result = json.loads(done.out)
            assert result["total_cost_usd"] is None
            text = result["report"]["text"]
        assert (done.code, text) == (130, "Half of it")


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ((signal.SIGTERM,), 143),
        ((signal.SIGHUP,), 129),
        ((signal.SIGINT, signal.SIGINT), 130),
        ((signal.SIGTERM, signal.SIGINT), 143),
    ],
)
async def test_sigterm_and_a_second_ctrl_c_end_the_process(
    mudroom: Mudroom, signals: tuple[signal.Signals, ...], code: int
) -> None:
    stuck = asyncio.Event()

    async def answer(request: ServerRequest) -> ServerAnswer:
        stuck.set()
        return Fault(delay=60)

    async with ModelServer(answer) as server:
        previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes children ignore it
        try:
            done = await mudroom.run_and_interrupt(
                "-p", "x", *MODEL, url=server.url, when=stuck, by=signals
            )
        finally:
            signal.signal(signal.SIGHUP, previous)
    assert done.code == code
    if len(signals) == 1:
        assert "the run is paused. To continue it: mudroom resume" in done.err


async def test_a_closed_pipe_is_no_error(mudroom: Mudroom) -> None:
    read, write = os.pipe()

    async def answer(request: ServerRequest) -> ServerAnswer:
        if request.turn == 0:
            os.close(read)
        return "the end" if request.turn else [ToolCallBlock("r", "read", {"file_path": "f0.txt"})]

    async with ModelServer(answer) as server:
        process = await mudroom.start(
            "-p", "x", *MODEL, "-o", "stream-json", url=server.url, stdout=write
        )
        os.close(write)
        _, err = await process.communicate()
    assert b"Traceback" not in err and b"BrokenPipe" not in err and b"Exception" not in err
    assert process.returncode in (0, 1)


async def test_a_stdout_on_a_full_disk_is_reported(mudroom: Mudroom) -> None:
    async with ModelServer(lambda request: "ok") as server:
        for arguments in (("-p", "x", *MODEL), ("help",), ("--version",), ("agents",)):
            with open("/dev/full", "wb") as full:
                process = await mudroom.start(*arguments, url=server.url, stdout=full)
            _, err = await process.communicate()
            assert (
                process.returncode == 1
                and b"stdout cannot be written: No space left" in err
                and b"Traceback" not in err
                and b"bug" not in err
            )


@pytest.mark.parametrize(
    "arguments",
    [
        ("help",),
        ("-v",),
        ("runs",),
        *(("-p", "x", *MODEL, "-o", form) for form in ("text", "json", "stream-json")),
    ],
)
async def test_a_closed_stdout_is_reported(mudroom: Mudroom, arguments: tuple[str, ...]) -> None:
    async with ModelServer(lambda request: "ok") as server:
        process = await mudroom.start(*arguments, url=server.url, preexec_fn=lambda: os.close(1))
        _, err = await process.communicate()
    assert process.returncode == 1 and b"Bad file descriptor" in err and b"Traceback" not in err


async def test_output_into_a_closed_pipe_prints_no_error(mudroom: Mudroom) -> None:
    read, write = os.pipe()
    os.close(read)
    process = await mudroom.start("help", stdout=write)
    os.close(write)
    _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")


async def test_a_home_that_cannot_be_written_is_reported(mudroom: Mudroom) -> None:
    mudroom.home.write_text("a file where the folder should be")
    done = await mudroom("-p", "x", *MODEL)
    assert (done.code, done.out) == (1, "") and str(mudroom.home) in done.err


async def test_a_damaged_journal_is_reported_and_the_others_are_listed(mudroom: Mudroom) -> None:
    async with ModelServer(lambda request: "ok") as server:
        await mudroom("-p", "first", *MODEL, url=server.url)
        await mudroom("-p", "second", *MODEL, url=server.url)
    damaged = sorted((mudroom.home / "sessions").glob("*.db"), key=os.path.getmtime)[0]
    damaged.write_bytes(b"not a database at all" * 200)
    done = await mudroom("runs")
    assert done.code == 0 and "second" in done.out and damaged.stem[:8] in done.out
    done = await mudroom("show", damaged.stem)
    assert (done.code, done.out) == (1, "") and str(damaged) in done.err
    done = await mudroom("doctor", "--json")
    assert done.code == 1 and "fail" in [
        c["state"] for c in json.loads(done.out)["checks"] if c["name"] == "journals"
    ]


async def test_a_window_that_a_refusal_taught_holds_in_the_next_session(mudroom: Mudroom) -> None:
    for number in range(TURNS):
        (mudroom.project / f"{number}.txt").write_text("a line of some file\n" * 300)
    refused: list[int] = []
    async with ModelServer(make_answer("anthropic:m")) as server:
        for _ in range(2):
            done = await mudroom("-p", "read all", "--model", "anthropic:m", url=server.url)
            assert (done.code, done.out) == (0, "done\n")
            refused.append(sum(len(request.body) > LIMIT for request in server.requests))
        done = await mudroom("doctor", "--json", url=server.url)
    assert refused[0] == refused[1] >= 1, "the second process is not refused"
    shown = await mudroom("show", "last", "--context", f"1.{TURNS}")
    assert shown.code == 0 and "\nnotes " in shown.out
    whole = await mudroom("show", "last", "--context", "1.1")
    assert whole.out == "compacted  no, the model has the whole conversation\n"
    for turn, problem in (("1", "no turn has the name '1'"), ("7.1", "run")):
        wrong = await mudroom("show", "last", "--context", turn)
        assert (wrong.code, wrong.out) == (2, "") and problem in wrong.err
    checks = {check["name"]: check for check in json.loads(done.out)["checks"]}
    assert "22,000 tokens, learnt today" in checks["learnt windows"]["found"]
    assert str(mudroom.home) in checks["learnt windows"]["remedy"]


async def check_model_request(mudroom: Mudroom, answer: ServerAnswer) -> tuple[int, dict[str, str]]:
    """Run `mudroom doctor` beside a local model server; return its exit code and its check."""
    async with ModelServer(lambda request: answer) as server:
        done = await mudroom("doctor", "--json", url=server.url)
        assert server.request_count == 1
    checks = {check["name"]: check for check in json.loads(done.out)["checks"]}
    return done.code, checks["model request"]


async def test_doctor_sends_a_request_to_a_local_server(mudroom: Mudroom) -> None:
    code, check = await check_model_request(mudroom, "hello")
    assert (code, check["state"]) == (0, "ok")
    assert " answers in " in check["found"]


async def test_doctor_reports_a_request_that_a_local_server_refuses(mudroom: Mudroom) -> None:
    error = b'{"error": {"message": "no model is loaded"}}'
    code, check = await check_model_request(mudroom, Fault(status=400, body=error))
    assert (code, check["state"]) == (1, "fail")
    assert "no model is loaded" in check["found"]
    assert check["remedy"] == "See the log of the server."
