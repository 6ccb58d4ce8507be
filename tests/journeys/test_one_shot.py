"""One prompt through the real command line, against a model server on loopback."""

import json

import pytest

from mudroom._core.messages import ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from ..cli.test_hostile_output import HOSTILE, RAW
from .conftest import Mudroom
from .course import MODEL, make_call


def answer_as_family(request: ServerRequest) -> ServerAnswer:
    """A parent with three children, each reading one file and answering with one word."""
    if "task" in request.tools:
        tasks = [
            make_call("task", prompt=f"CHILD {n}", description=f"read {n}", agent="explore")
            for n in range(3)
        ]
        return "all done" if request.turn else tasks
    n = next(n for n in range(3) if f"CHILD {n}" in request.body.decode())
    return f"REPORT-{n}" if request.turn else [make_call("read", file_path=f"f{n}.txt")]


async def test_the_answer_goes_to_stdout_and_everything_else_to_stderr(mudroom: Mudroom) -> None:
    async with ModelServer(answer_as_family) as server:
        done = await mudroom("-p", "PARENT", *MODEL, url=server.url)
        quiet = await mudroom("--print", "PARENT", "-q", *MODEL, url=server.url)
        verbose = await mudroom("-p", "PARENT", "--verbose", *MODEL, url=server.url)
    assert (done.code, done.out) == (0, "all done\n")
    assert quiet == (0, "all done\n", "")
    lines = done.err.splitlines()
    assert sum(line.startswith("> task (read ") for line in lines) == 3
    assert sum("Done (1 tool use" in line for line in lines) == 3
    assert lines[-1].startswith("3 children read 9") and "came back" in lines[-1]
    assert "\x1b" not in done.err and "read f" not in done.err
    calls = [line for line in verbose.err.splitlines() if "read f" in line]
    assert sum(line.startswith("explore (") for line in calls) == 3


async def test_no_text_of_a_model_controls_the_terminal_behind_a_pipe(mudroom: Mudroom) -> None:
    hostile = HOSTILE.replace("\0", "").replace("\ud800", "")

    def answer(request: ServerRequest) -> ServerAnswer:
        if request.turn:
            return hostile
        name = {"file_path": f"f0.txt{hostile}"}
        return [ToolCallBlock("r", "read", name), ToolCallBlock("x", f"tool{hostile}", {})]

    async with ModelServer(answer) as server:
        text = await mudroom("-p", hostile, "--verbose", *MODEL, url=server.url)
        lines = await mudroom("-p", "x", "-o", "stream-json", *MODEL, url=server.url)
    assert not RAW.search(text.out + text.err + lines.out + lines.err)
    assert "evil" in text.out and "evil" in text.err
    assert json.loads(lines.out.splitlines()[-1])["result"] == hostile


async def test_mentions_mean_the_same_as_at_the_prompt_and_data_has_none(mudroom: Mudroom) -> None:
    prompts: list[str] = []

    def answer(request: ServerRequest) -> ServerAnswer:
        prompts.append(request.body.decode())
        return "ok"

    words = "@explore read @f0.txt, then ask @exploer"
    async with ModelServer(answer) as server:
        done = await mudroom("-p", words, *MODEL, url=server.url, stdin=b"@plan and @f1.txt")
    assert done.code == 0
    assert "f0.txt: attached, 301 lines, 3.6 kB\n" in done.err
    assert "@exploer is no agent, named child or file here. It is sent as text." in done.err
    assert "Did you mean explore?" in done.err
    (prompt,) = prompts
    assert "Give this to the agent explore with the task tool." in prompt
    assert "MUD-0" in prompt
    assert "@plan and @f1.txt" in prompt
    assert "to the agent plan" not in prompt
    assert "MUD-1" not in prompt


async def test_json_output_is_one_object(mudroom: Mudroom) -> None:
    async with ModelServer(answer_as_family) as server:
        done = await mudroom("-p", "PARENT", "-o", "json", *MODEL, url=server.url)
    result = json.loads(done.out)
    assert (result["type"], result["subtype"]) == ("result", "success")
    assert (result["result"], result["is_error"]) == ("all done", False)
    assert result["num_turns"] == 2 and result["modelUsage"] and result["session_id"]
    assert "total_cost_usd" in result
    reports = sorted(result["reports"], key=lambda report: report["run_id"])
    assert [(each["text"], each["reason"], each["files_read"]) for each in reports] == [
        (f"REPORT-{n}", "GOAL", [f"f{n}.txt"]) for n in range(3)
    ]
    ledger = result["ledger"]
    assert ledger["children"] == 3 and ledger["taken_lines"] > 900 > ledger["returned_lines"]


async def test_stdin_is_added_to_the_prompt_or_is_the_prompt(mudroom: Mudroom) -> None:
    async with ModelServer(lambda request: "ok") as server:
        await mudroom("-p", "review", *MODEL, stdin=b"a\r\nb\r\n", url=server.url)
        await mudroom("-p", "-", *MODEL, stdin="从标准输入\r\n".encode(), url=server.url)
        await mudroom("-p", *MODEL, stdin=b"bare flag", url=server.url)
        await mudroom(*MODEL, stdin=b"no flag", url=server.url)
        await mudroom("-p", *MODEL, "--quiet", "flag first", url=server.url)
        await mudroom("word last", *MODEL, url=server.url)
    prompts = [request.messages[0]["content"] for request in server.requests]
    texts = [prompt if isinstance(prompt, str) else prompt[0]["text"] for prompt in prompts]
    assert texts == [
        "review\n\n<stdin>\na\nb\n</stdin>",
        "从标准输入",
        "bare flag",
        "no flag",
        "flag first",
        "word last",
    ]


async def test_a_turn_limit_ends_the_run_with_its_reason_and_exit_code_1(mudroom: Mudroom) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        read = make_call("read", file_path="f0.txt", offset=request.number)
        return [read] if request.turn < 2 else "so far"

    async with ModelServer(answer) as server:
        done = await mudroom(
            "-p", "PARENT", "-o", "json", "--max-turns", "2", *MODEL, url=server.url
        )
        text = await mudroom("-p", "PARENT", "--max-turns", "2", *MODEL, url=server.url)
    listed = await mudroom("runs", "--json")
    costs = [each["usd"] for each in json.loads(listed.out)]
    result = json.loads(done.out)
    assert (done.code, result["subtype"], result["reason"]) == (1, "error_max_turns", "MAX_TURNS")
    assert result["report"]["text"] == "so far"
    assert (text.code, text.out) == (1, "so far\n")
    assert "the run reached its turn limit after 2 turns" in text.err
    assert costs == [pytest.approx(result["total_cost_usd"], rel=0.05)] * 2
    rows = (await mudroom("runs")).out.splitlines()
    assert [row.count("$0.03 · project: PARENT") for row in rows] == [1, 1]


async def test_rules_choose_the_model_of_children(mudroom: Mudroom) -> None:
    mudroom.home.mkdir()
    config = mudroom.home / "config.toml"
    haiku = "anthropic:claude-haiku-4-5"
    config.write_text(f'[child_model]\nexplore = "{haiku}"\n')
    rules = f"explore={haiku}; *=anthropic:claude-opus-4-5"
    for flags in ((), ("--child-model", rules), ("--child-model", haiku)):
        async with ModelServer(answer_as_family) as server:
            done = await mudroom("-p", "PARENT", *MODEL, *flags, url=server.url)
        assert done.code == 0
        assert {("task" in request.tools, request.model) for request in server.requests} == {
            (True, "claude-sonnet-4-5"),
            (False, "claude-haiku-4-5"),
        }
    replayed = await mudroom("-p", "PARENT", "-m", "offline", "--child-model", "explore=replay:no")
    assert (replayed.code, "unknown session 'no'" in replayed.err) == (2, True)
    refused = await mudroom("-p", "PARENT", "-m", "offline", "--child-model", "exlore=offline")
    assert refused.code == 2
    assert "unknown agent 'exlore' (child_model). Did you mean explore?" in refused.err


COOL_AGENT = json.dumps({"cool": {"description": "d", "prompt": "Be brief.", "temperature": 0.2}})
COOL = ("--agents", COOL_AGENT, "--agent", "cool", "--model", "anthropic:claude-sonnet-5-5")
UNSENT = "anthropic:claude-sonnet-5-5: temperature is not sent, because the model refuses it."


async def test_a_warning_of_the_log_is_a_notice_unless_quiet(mudroom: Mudroom) -> None:
    async with ModelServer(lambda _: "Hello.") as server:
        done = await mudroom("-p", "Hi.", *COOL, url=server.url)
        quiet = await mudroom("-q", "-p", "Hi.", *COOL, url=server.url)
    assert (done.code, done.out) == (0, "Hello.\n")
    assert f"mudroom: {UNSENT}" in done.err.splitlines()
    assert quiet == (0, "Hello.\n", "")
