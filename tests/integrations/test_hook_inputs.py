"""Inputs of hooks: the exact fields of each event, as Claude Code documents them."""

from __future__ import annotations

from pathlib import Path

from mudroom import Session
from mudroom.models.scripted import ScriptedModel, call
from mudroom.permissions import Permissions

from .test_hook_functions import Recorder, make_options

BASE = "session_id transcript_path cwd hook_event_name"
RUN = f"{BASE} prompt_id permission_mode"
TOOL = f"{RUN} tool_name tool_input tool_use_id"
FIELDS = {
    "SessionStart": f"{BASE} source model",
    "SessionEnd": f"{BASE} reason",
    "UserPromptSubmit": f"{RUN} prompt",
    "PreToolUse": TOOL,
    "PermissionRequest": f"{TOOL} permission_suggestions",
    "PermissionDenied": f"{TOOL} reason",
    "PostToolUse": f"{TOOL} duration_ms tool_response",
    "PostToolUseFailure": f"{TOOL} duration_ms error is_interrupt",
    "SubagentStart": f"{RUN} agent_id agent_type",
    "SubagentStop": f"{RUN} agent_id agent_type agent_transcript_path stop_hook_active "
    "last_assistant_message reason",
    "Stop": f"{RUN} stop_hook_active last_assistant_message background_tasks session_crons",
    "PreCompact": f"{RUN} trigger custom_instructions",
    "PostCompact": f"{RUN} trigger compact_summary",
}
SCRIPT = [
    [call("read", file_path="notes.txt"), call("read", file_path="missing.txt")],
    [call("bash", command="touch made"), call("task", prompt="D1 child")],
    "end",
]


async def test_each_event_has_its_fields_and_absolute_paths(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\n")
    recorder = Recorder()
    model = ScriptedModel(
        lambda request: "done" if request.prompt.startswith("D1") else SCRIPT[min(request.turn, 2)]
    )
    options = make_options(tmp_path, hooks=recorder.on(*FIELDS), model=model)
    async with Session(**options, permissions=Permissions.of(ask=["Bash"])) as session:
        await session.run("D0")
        await session.compact()
    by_event = {each["hook_event_name"]: each for each in recorder.inputs}
    assert {event: set(fields) for event, fields in by_event.items()} == {
        event: set(names.split()) for event, names in FIELDS.items()
    }
    reads = [each["tool_input"] for each in recorder.inputs if each.get("tool_name") == "Read"]
    assert {Path(each["file_path"]).parent for each in reads} == {tmp_path}
    assert {each["session_id"] for each in recorder.inputs} == {session.id}
    assert by_event["PreCompact"]["trigger"] == "manual"
    assert by_event["PostCompact"]["compact_summary"] == "end"
