"""Child runs: splits work into prompts, starts the children, and reads their reports."""

from __future__ import annotations

from msgspec import Struct

from mudroom.views import parse_report

from .plans import Context, Steps, plan_call
from .tool_output import read_files

_BATCH = 5
_MAX_BATCH = 40
_MAX_CHILDREN = 16


class ChildAnswer(Struct, frozen=True):
    """The text of a child's report; `problem` is not empty if the child did not finish."""

    text: str
    problem: str


def split_batches(files: list[str]) -> list[list[str]]:
    """Split files into batches of five, or larger ones for many files, keeping their order."""
    size = min(_MAX_BATCH, max(_BATCH, -(-len(files) // _MAX_CHILDREN)))
    return [files[start : start + size] for start in range(0, len(files), size)]


def run_children(
    prompts: list[str], titles: list[str], context: Context, *, writes: bool = False
) -> Steps[list[ChildAnswer]]:
    """Start all children in one turn and return their answers. A cut report is read whole."""
    agent = context.reader if context.reader and not writes else None
    outputs = yield [
        plan_call("task", prompt=prompt, description=title, agent=agent)
        for prompt, title in zip(prompts, titles, strict=True)
    ]
    reports = [parse_report(output.text) for output in outputs]
    whole = yield from read_files(report.spill for report in reports if report.spill)
    answers: list[ChildAnswer] = []
    for title, output, report in zip(titles, outputs, reports, strict=True):
        # The engine's warning continues with the report, which is shown anyway.
        warning = report.warning.partition("; what follows is")[0]
        warning = warning or (report.text if output.error else "")
        text = whole[report.spill].text.strip() if report.spill else report.text
        problem = f"⚠ {title}: {warning}" if warning else ""
        answers.append(ChildAnswer(text if report.warning or not output.error else "", problem))
    return answers
