"""Inputs of hooks: the exact fields of each event, as Claude Code documents them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from mudroom import ApprovalDecision, ApprovalRequest, Integrations, Session
from mudroom._adapters.integrations.hook_programs.events import RULES
from mudroom._adapters.models.scripted import ScriptedModel, call
from mudroom.permissions import Permissions

from .test_hook_functions import Recorder, make_options

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("hook_inputs.json").read_text())
"""The whole input of the first hook of each event."""
SCRIPT = [
    [call("read", file_path="notes.txt"), call("read", file_path="missing.txt")],
    [call("bash", command="touch made"), call("task", prompt="D1 child")],
    "end",
]


class Denier:
    """An approver that denies."""

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision(False, "not today")


def remove_chances(value: Any, names: dict[str, str]) -> Any:
    """Return an input without what differs from run to run: paths, ids, and durations."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            key: 0 if key == "duration_ms" else remove_chances(each, names)
            for key, each in fields.items()
        }
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [remove_chances(each, names) for each in items]
    if isinstance(value, str):
        for name, replacement in names.items():
            value = value.replace(name, replacement)
    return value


async def test_each_event_has_the_input_of_the_record(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\n")
    recorder = Recorder()
    model = ScriptedModel(
        lambda request: "done" if request.prompt.startswith("D1") else SCRIPT[min(request.turn, 2)]
    )
    options = make_options(
        tmp_path,
        integrations=Integrations(hooks=recorder.on(*RULES)),
        model=model,
        approver=Denier(),
    )
    async with Session(**options, permissions=Permissions.of(ask=["Bash"])) as session:
        await session.run("D0")
        await session.compact()
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(tmp_path))
    names = {session.id: "SESSION", str(tmp_path): "/FOLDER", slug: "-FOLDER"}
    inputs = remove_chances(recorder.inputs, names)
    first = {each["hook_event_name"]: each for each in reversed(inputs)}
    assert first == GOLDEN
    assert set(first) == set(RULES)
