"""Child runs: split work into prompts, start the children, and read their reports."""

from __future__ import annotations

import re
from itertools import pairwise

from msgspec import Struct

from .plans import CallOutput, Context, Steps, plan_call
from .tool_output import read_files

_BATCH = 5
_MAX_BATCH = 40
_MAX_CHILDREN = 16
_ENGINE_LINE = re.compile(r"^\[(?:evidence\b.*|… cut: .*)\]$")
_WARNING = re.compile(r"^\[[A-Z_]+: .*\]$")
_WHOLE_REPORT = re.compile(r"^\[… cut: .* is in (\S+)\]$", re.MULTILINE)


class ChildPrompt(Struct, frozen=True):
    """Work for one child: its prompt, and three to five words for the screen."""

    prompt: str
    title: str


class ChildReport(Struct, frozen=True):
    """The text of a child's report; `problem` is not empty when the child did not finish."""

    text: str
    problem: str = ""


def split_batches(files: list[str]) -> list[list[str]]:
    """Split files into batches of about the same size, in order.

    Five per child, more for many files.
    """
    size = min(_MAX_BATCH, max(_BATCH, -(-len(files) // _MAX_CHILDREN)))
    count = -(-len(files) // size)
    bounds = [round(n * len(files) / count) for n in range(count + 1)] if count else []
    return [files[start:end] for start, end in pairwise(bounds)]


def run_children(
    work: list[ChildPrompt], context: Context, *, writes: bool = False
) -> Steps[list[ChildReport]]:
    """Start all children in one turn and return their reports."""
    agent = context.reader if context.reader and not writes else None
    outputs = yield [
        plan_call("task", prompt=item.prompt, description=item.title, agent=agent) for item in work
    ]
    paths = [path for output in outputs for path in _WHOLE_REPORT.findall(output.text)]
    whole = {}
    if paths and "read" in context.tools:
        whole = yield from read_files(paths)
    return [
        _parse_report(item, output, {path: file.text for path, file in whole.items()})
        for item, output in zip(work, outputs, strict=True)
    ]


def list_problems(reports: list[ChildReport]) -> list[str]:
    """Return one line for each child that did not finish."""
    return [f"⚠ {report.problem}" for report in reports if report.problem]


def _parse_report(work: ChildPrompt, output: CallOutput, whole: dict[str, str]) -> ChildReport:
    lines = output.text.strip().split("\n")
    problem = ""
    if output.is_error or _WARNING.match(lines[0]):
        problem = f"{work.title}: {lines[0].strip('[]')}"
        lines = lines[1:] if _WARNING.match(lines[0]) else []
    spilled = _WHOLE_REPORT.search(output.text)
    if spilled and whole.get(spilled[1]):
        return ChildReport(whole[spilled[1]].strip(), problem)
    text = "\n".join(line for line in lines if not _ENGINE_LINE.match(line)).strip()
    return ChildReport("" if text == "(no summary)" else text, problem)
