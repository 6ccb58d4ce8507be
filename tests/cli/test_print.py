"""What a one-shot run ends with: its exit code, and why it did not reach its goal in one line."""

from typing import Any

import pytest

from mudroom._core.agents import Reason, Report
from mudroom._core.events import TurnFailed
from mudroom.cli.actions.one_shot import ExitCodeRule
from mudroom.cli.output.report import explain_failure


def report(reason: Reason, *, text: str = "so far", error: str = "") -> Report:
    return Report(
        outputs=dict[str, Any](), text=text, error=error, run_id="1", reason=reason, turns=3
    )


@pytest.mark.parametrize("reason", Reason)
def test_only_a_goal_is_0(reason: Reason) -> None:
    assert ExitCodeRule().exit_code(report(reason), []) == (0 if reason is Reason.GOAL else 1)


def test_a_signal_decides_whatever_the_reason() -> None:
    assert ExitCodeRule().exit_code(report(Reason.CANCELLED), [2]) == 130
    assert ExitCodeRule().exit_code(report(Reason.GOAL), [15, 2]) == 143


def test_75_is_for_what_may_work_later_in_the_root_run() -> None:
    verdict = ExitCodeRule()
    verdict.apply(TurnFailed(at=0.0, run="1.1.1", error="overloaded", transient=True))
    assert verdict.exit_code(report(Reason.ERROR), []) == 1, (
        "a child's trouble was the parent's to deal with"
    )
    verdict.apply(TurnFailed(at=0.0, run="1", error="overloaded", transient=True))
    assert verdict.exit_code(report(Reason.ERROR), []) == 75
    assert verdict.exit_code(report(Reason.GOAL), []) == 0
    verdict.apply(TurnFailed(at=0.0, run="1", error="bad key"))
    assert verdict.exit_code(report(Reason.ERROR), []) == 1


def test_why_is_one_line_of_what_went_wrong() -> None:
    assert explain_failure(report(Reason.GOAL)) == ""
    assert (
        explain_failure(report(Reason.ERROR, error="the provider said \x1b[31mno"))
        == "the provider said no"
    )
    assert (
        explain_failure(report(Reason.MAX_TURNS))
        == "the run ended with MAX_TURNS after 3 turns; its partial result is the answer"
    )
    assert explain_failure(report(Reason.LOOP, text="")).endswith("it gave no answer")
