"""Annotations of a run for GitHub Actions, and the summary of its step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mudroom import Ledger
from mudroom._cli.output.github_actions import (
    MAX_ANSWER,
    MAX_REMARKS,
    make_annotations,
    make_summary,
    write_annotations,
)
from mudroom._core.runs import Reason, Report


def make_report(outputs: Any = None, reason: Reason = Reason.GOAL, **fields: Any) -> Report:
    values: dict[str, Any] = {"text": "", "run_id": "1", "turns": 3, **fields}
    return Report(outputs=outputs or {}, reason=reason, **values)


def test_remarks_become_annotations_at_any_depth() -> None:
    outputs = {
        "verdict": "bad",
        "parts": [
            {"findings": [{"file": "a.py", "line": 3, "message": "x", "severity": "ERROR"}]},
            {"file": "b,c:d.py", "line": 0, "message": "y", "severity": "odd"},
            {"file": "c.py", "line": True, "message": "z", "severity": "info"},
            {"file": "e.py", "line": 3.0, "message": "whole"},
            {"file": "e.py", "line": " 12 ", "message": "digits"},
            {"file": "e.py", "line": 2.5, "message": "no line"},
            {"file": "e.py", "line": "12-14", "message": "no line"},
            {"file": "e.py", "line": "9" * 20, "message": "no line"},
            {"file": "e.py", "line": float("inf"), "message": "no line"},
            {"file": " ", "line": 3, "message": "no place"},
            {"file": 3, "message": "no file"},
            {"file": "d.py"},
        ],
    }
    assert make_annotations(make_report(outputs)) == [
        "::error file=a.py,line=3::x",
        "::warning file=b%2Cc%3Ad.py::y",
        "::notice file=c.py::z",
        "::warning file=e.py,line=3::whole",
        "::warning file=e.py,line=12::digits",
        *["::warning file=e.py::no line"] * 4,
        "::warning::no place",
    ]


def test_a_text_of_the_model_is_no_command_of_its_own() -> None:
    message = "100%\r\n::add-mask::x\n\x1b[31m"
    outputs = {"list": [{"file": "a.py\n::error::b", "message": message}]}
    (line,) = make_annotations(make_report(outputs))
    assert "\n" not in line and "\r" not in line and "\x1b" not in line
    assert line.startswith("::warning file=a.py%0A%3A%3Aerror%3A%3Ab::100%25")


def test_many_remarks_are_counted_and_a_failure_is_one() -> None:
    remark = {"file": "a.py", "message": "x"}
    outputs = {"list": [remark] * (MAX_REMARKS + 2)}
    lines = make_annotations(make_report(outputs, Reason.MAX_TURNS))
    assert len(lines) == MAX_REMARKS + 2
    assert lines[-2] == "::notice title=mudroom::2 more remarks, not shown here"
    assert lines[-1].startswith("::error title=mudroom::the run reached its turn limit")


def test_the_summary_is_added_to_the_file_of_the_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    report = make_report(text="It is *fine*.", usd=0.25)
    write_annotations(report, Ledger(), {"GITHUB_STEP_SUMMARY": str(file)}, session="s1")
    text = file.read_text()
    assert text.startswith("before\n### mudroom: the run reached its goal (GOAL)\n")
    assert "costs $0.2500" in text and "session s1" in text and "It is *fine*." in text
    write_annotations(report, Ledger(), {"GITHUB_STEP_SUMMARY": str(tmp_path)}, session="s1")
    write_annotations(report, Ledger(), {}, session="s1")
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert "the summary cannot be written: Is a directory" in written.err


def test_a_long_answer_is_cut_and_outputs_are_shown_as_json() -> None:
    long = make_summary(make_report(text="x" * (MAX_ANSWER + 1)), Ledger(), session="s")
    assert len(long) < MAX_ANSWER + 1_000 and "60,001 characters in all" in long
    outputs = make_summary(make_report({"verdict": "good"}, text="t"), Ledger(), session="s")
    assert '```json\n{\n  "verdict": "good"\n}\n```' in outputs
