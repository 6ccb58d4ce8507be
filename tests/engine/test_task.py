"""The task tool: agents, tools, turns, models and number of children; the report for the parent."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.engine.conftest import Stage, block_texts

from mudroom import Agent, Budget, Children, Effect, Output, Reason, tool
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import RunStarted
from mudroom._core.runs import Brief, Report
from mudroom._engine.child_report import (
    NO_SUMMARY,
    REPORT_CAP,
    ParsedReport,
    format_evidence,
    parse_report,
)
from mudroom.errors import ModelRefused
from mudroom.testing.clock import run_virtual

ALL = ("bash", "read", "write", "edit", "glob", "grep", "todo")
CHILD = {"CHILD": ["done"]}


def read_parts(request: Request) -> Answer:
    """Read another part each turn; give a summary when there are no tools."""
    return [call("read", path="notes.txt", limit=request.turn + 1)] if request.tools else "so far"


def start_child(request: Request) -> Answer:
    """Start one child if the task tool is there."""
    return (
        [call("task", prompt="CHILD")] if "task" in request.tools and not request.turn else "done"
    )


def list_briefs(stage: Stage) -> dict[str, Brief]:
    return {event.run: event.brief for event in stage.select(RunStarted)}


async def test_a_child_is_general_by_default_and_has_every_tool_but_task(stage: Stage) -> None:
    await stage.run(
        {"PARENT": [[call("task", prompt="CHILD work", description="Do it")], "end"], **CHILD}
    )
    (asked,) = stage.list_requests("CHILD")
    assert sorted(asked.tools) == sorted(ALL) and "task" in stage.model.requests[0].tools
    assert "focused" in asked.system and "summary" in asked.system and "cannot ask" in asked.system
    brief = list_briefs(stage)["1.1.1"]
    assert (brief.agent.name, brief.parent, brief.depth, brief.description, brief.budget.turns) == (
        "general",
        "1",
        1,
        "Do it",
        30,
    )


async def test_a_child_starts_with_only_its_prompt(stage: Stage) -> None:
    await stage.run(
        {"PARENT": [["secret", call("task", prompt="CHILD work")], "end"], **CHILD},
        prompt="PARENT secret",
    )
    (asked,) = stage.list_requests("CHILD")
    assert [block_texts(message) for message in asked.messages] == [["CHILD work"]]


async def test_explore_only_reads(stage: Stage) -> None:
    await stage.run({"PARENT": [[call("task", prompt="CHILD", agent="explore")], "end"], **CHILD})
    assert stage.list_requests("CHILD")[0].tools == ("read", "glob", "grep", "todo")


@pytest.mark.parametrize(
    "named", [{"subagent_type": "explore"}, {"agent_name": "explore"}, {"agent": "Explore"}]
)
async def test_agent_parameters_of_other_programs_are_understood(
    stage: Stage, named: dict[str, str]
) -> None:
    await stage.run({"PARENT": [[call("task", prompt="CHILD", **named)], "end"], **CHILD})
    assert list_briefs(stage)["1.1.1"].agent.name == "explore"


async def test_an_unknown_agent_is_refused_with_the_nearest_name(
    stage: Stage,
) -> None:
    await stage.run({"PARENT": [[call("task", prompt="CHILD", agent="exploer")], "end"], **CHILD})
    assert stage.results[0].error and "Did you mean explore?" in stage.results[0].text
    assert stage.runs == ["1"]


async def test_a_call_can_set_the_turns_of_its_child_and_the_reason_is_stated_first(
    stage: Stage,
) -> None:
    await stage.run(
        {"PARENT": [[call("task", prompt="CHILD", max_turns=2)], "end"], "CHILD": [read_parts]}
    )
    child = stage.reports["1.1.1"]
    assert (child.reason, child.turns, child.recovered, child.text) == (
        Reason.MAX_TURNS,
        3,
        True,
        "so far",
    )
    warning = (
        "MAX_TURNS: stopped after 2 turns, its limit; "
        "what follows is its summary, not a finished result"
    )
    first, second, *_ = stage.results[0].text.split("\n")
    assert (first, second) == (f"[{warning}]", "so far") and not stage.results[0].error
    assert parse_report(stage.results[0].text) == ParsedReport("so far", warning)


async def test_a_call_can_set_the_model_of_its_child(stage: Stage) -> None:
    asks = call("task", prompt="Which testing framework does this project use?", model="offline")
    (stage.folder / "pytest.ini").write_text("[pytest]\n")
    (stage.folder / "test_it.py").write_text("import pytest\n\ndef test_it():\n    assert pytest\n")
    await stage.run({"PARENT": [[asks], "end"]})
    child = stage.reports["1.1.1"]
    assert child.model.startswith("offline") and child.ok and "pytest" in child.text
    assert len(stage.model.requests) == 2, "the scripted model was asked by the parent only"


async def test_a_session_can_set_the_model_of_its_children(stage: Stage) -> None:
    asks = call("task", prompt="Which testing framework does this project use?")
    await stage.run({"PARENT": [[asks], "end"]}, children=Children(model="offline"))
    assert stage.reports["1.1.1"].model.startswith("offline")


async def test_an_unknown_model_is_an_error_result_and_no_child_is_counted(stage: Stage) -> None:
    wrong = call("task", prompt="CHILD", model="antropic:claude")
    right = call("task", prompt="CHILD")
    await stage.run({"PARENT": [[wrong], [right], "end"], **CHILD}, budget=Budget(children=1))
    assert "anthropic" in stage.results[0].text
    assert [result.error for result in stage.results] == [True, False]


async def test_a_child_without_depth_cannot_start_children(stage: Stage) -> None:
    await stage.run(
        {
            "PARENT": [[call("task", prompt="CHILD")], "end"],
            "CHILD": [[call("Task", prompt="GRANDCHILD")], "alone"],
        }
    )
    (result,) = stage.list_requests("CHILD")[-1].results
    assert result.error and "no tool 'Task'" in result.text
    assert stage.runs == ["1", "1.1.1"] and stage.reports["1.1.1"].text == "alone"


async def test_the_depth_budget_limits_the_levels_of_children(stage: Stage) -> None:
    await stage.run({"PARENT": [start_child], "CHILD": [start_child]}, budget=Budget(depth=3))
    assert stage.runs == ["1", "1.1.1", "1.1.1.1.1", "1.1.1.1.1.1.1"]
    assert ["task" in asked.tools for asked in stage.model.requests if not asked.turn] == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("children", "limits", "seconds"),
    [(64, Children(), 1), (65, Children(), 2), (6, Children(parallel=2), 3)],
)
def test_at_most_sixty_four_children_or_fewer_by_a_setting_run_at_once(
    stage: Stage, children: int, limits: Children, seconds: int
) -> None:
    flying = peak = 0

    async def answer(request: Request) -> Answer:
        nonlocal flying, peak
        if request.prompt == "PARENT":
            tasks = [call("task", prompt=f"CHILD {n}") for n in range(children)]
            return "end" if request.turn else tasks
        flying += 1
        peak = max(peak, flying)
        await asyncio.sleep(1)
        flying -= 1
        return "done"

    report = run_virtual(stage.run(answer, children=limits))
    assert (peak, len(stage.runs)) == (2 if children == 6 else 64, children + 1)
    assert report.seconds == pytest.approx(seconds, abs=0.1)


async def test_grandchildren_do_not_wait_for_slots_of_their_parents(stage: Stage) -> None:
    two = [call("task", prompt="CHILD"), call("task", prompt="CHILD")]

    def child(request: Request) -> Answer:
        return two if "task" in request.tools and not request.turn else "done"

    async with asyncio.timeout(60):
        await stage.run(
            {"PARENT": [two, "end"], "CHILD": [child]},
            children=Children(parallel=1),
            budget=Budget(depth=2),
        )
    assert len(stage.runs) == 7


# What a parent reads of a child.


async def test_the_parent_reads_the_last_text_and_one_line_of_evidence(stage: Stage) -> None:
    (stage.folder / "b.txt").write_text("mud\n")
    works = [
        ["I begin", call("read", path="notes.txt"), call("read", path="b.txt")],
        [
            call("write", path="new.txt", content="x"),
            call("bash", command="echo mud"),
            call("read", path="gone.txt"),
        ],
        "Three lines, one of mud.",
    ]
    await stage.run({"PARENT": [[call("task", prompt="CHILD")], "end"], "CHILD": works})
    words, evidence = stage.results[0].text.split("\n\n")
    assert words == "Three lines, one of mud." and not stage.results[0].error
    assert evidence.startswith(
        "[evidence: 5 tool calls (read 3, write 1, bash 1); read notes.txt, b.txt; wrote new.txt; "
    )
    assert " tokens; " in evidence and evidence.endswith(" s; run 1.1.1]")
    assert stage.reports["1"].files_read == ("notes.txt", "b.txt") and stage.reports[
        "1"
    ].files_changed == ("new.txt",)


async def test_the_evidence_states_that_no_tool_was_called(stage: Stage) -> None:
    await stage.run(
        {"PARENT": [[call("task", prompt="CHILD")], "end"], "CHILD": ["It is pytest, I am sure."]}
    )
    assert "[evidence: it called no tool: nothing it says was looked up; " in stage.results[0].text


@pytest.mark.parametrize("words", ["", "  \n "])
async def test_an_empty_report_is_marked_and_parsed_as_empty(stage: Stage, words: str) -> None:
    await stage.run({"PARENT": [[call("task", prompt="CHILD")], "end"], "CHILD": [words] * 2})
    assert stage.results[0].text.split("\n")[1] == NO_SUMMARY
    assert parse_report(stage.results[0].text).text == ""


async def test_a_long_report_is_cut_and_the_parent_can_read_the_whole(stage: Stage) -> None:
    long = "".join(f"finding {n}\n" for n in range(5_000))

    def read_on(request: Request) -> Answer:
        path = request.results[0].text.partition("is in ")[2].partition("]")[0]
        return [call("read", path=path, offset=4_999, limit=1)]

    await stage.run({"PARENT": [[call("task", prompt="CHILD")], read_on, "end"], "CHILD": [long]})
    report, rest = stage.results
    assert (
        REPORT_CAP < len(report.text) < REPORT_CAP + 600
        and "finding 4998" not in report.text
        and "[evidence: " in report.text
    )
    assert "finding 4998" in rest.text and not rest.error
    parsed = parse_report(report.text)
    assert parsed.text == long[:REPORT_CAP] and not parsed.warning
    assert Path(parsed.spill).read_text() == long.strip()
    assert os.stat(parsed.spill).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["It is pytest.", "One:\n\n[evidence] none\n| a | b |"])
async def test_a_formatted_report_can_be_parsed(stage: Stage, text: str) -> None:
    await stage.run({"PARENT": [[call("task", prompt="CHILD")], "end"], "CHILD": [text]})
    assert parse_report(stage.results[0].text) == ParsedReport(text)
    assert parse_report(f"{text}\nplain") == ParsedReport(f"{text}\nplain"), "it is no report"


EMPTY = Report(text="", reason=Reason.GOAL, run_id="1.1.1", outputs=dict[str, str]())


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("server x failed: signal 9; last lines: y] [evidence: z", "server x failed: signal 9"),
        ("server x said: y]\n[evidence: 9 calls; z]", "server x said: y) (evidence: 9 calls, z)"),
        ("server x said:\x1b[31m a\u2028b", "server x said: a b"),
        ("server x: " + "y" * 200, f"server x: {'y' * 110}…"),
        ("server x cannot be used: no file.", "server x cannot be used: no file"),
    ],
)
def test_text_of_a_server_is_no_evidence(reason: str, shown: str) -> None:
    evidence = format_evidence(replace(EMPTY, missing_tools=(reason, "other")))
    assert f"; tools were missing: {shown} and 1 more; 0 tokens; " in evidence
    assert parse_report(f"Nothing.\n{evidence}") == ParsedReport("Nothing.")


def test_a_path_with_a_line_break_stays_in_the_line_of_evidence() -> None:
    files = ("a\nb.txt", "app/[id]/page.tsx")
    evidence = format_evidence(replace(EMPTY, calls={"write": 2}, files_changed=files))
    assert "wrote a b.txt, app/[id]/page.tsx;" in evidence
    assert parse_report(f"Done.\n{evidence}") == ParsedReport("Done.")


@pytest.mark.parametrize(("count", "more"), [(5, ""), (7, " and 2 more")])
def test_a_report_lists_five_files_and_counts_the_others(count: int, more: str) -> None:
    files = tuple(f"./a{n}" for n in range(count))
    evidence = format_evidence(replace(EMPTY, calls={"write": count}, files_changed=files))
    assert f"wrote a0, a1, a2, a3, a4{more};" in evidence


async def test_a_failed_child_gives_an_error_result_with_its_last_text(stage: Stage) -> None:
    broken = [["I had this", call("read", path="notes.txt")], ModelRefused("bad key")]
    report = await stage.run({"PARENT": [[call("task", prompt="CHILD")], "end"], "CHILD": broken})
    assert stage.results[0].error and stage.results[0].text.startswith(
        "[ERROR: bad key; what follows is partial]\nI had this\n"
    )
    assert report.ok


async def test_outputs_of_a_child_are_json_in_its_report(stage: Stage) -> None:
    counter = Agent(name="counter", outputs={"lines": Output("how many", {"type": "integer"})})
    emits = [
        [call("self.emitvalue", emit_variable_name="lines", emit_variable_value=3)],
        "never asked",
    ]
    await stage.run(
        {"PARENT": [[call("task", prompt="CHILD", agent="counter")], "end"], "CHILD": emits},
        agents=[counter],
    )
    assert (
        'Outputs: {"lines":3}' in stage.results[0].text and len(stage.list_requests("CHILD")) == 1
    )


async def test_an_agent_has_only_the_tools_it_names(stage: Stage) -> None:
    @tool(effect=Effect.PURE)
    async def weather() -> str:
        return "rain"

    agents = [
        Agent(name="narrow", tools=("Read", "weather", "task", "deploy")),
        Agent(name="no_shell", tools=("*", "!Bash")),
    ]
    asks = [
        call("task", prompt="CHILD", agent="narrow"),
        call("task", prompt="CHILD", agent="no_shell"),
    ]
    await stage.run({"PARENT": [asks, "end"], **CHILD}, tools=[weather], agents=agents)
    assert list_briefs(stage)["1.1.1"].tools == ("read", "weather")
    assert {"bash", "task"}.isdisjoint(
        list_briefs(stage)["1.1.2"].tools
    ) and "weather" in list_briefs(stage)["1.1.2"].tools
