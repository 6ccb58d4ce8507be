"""A program that is killed: a parent with three children that read, write, edit and run commands.

    python crash.py

Reads lines "HOME WORK REQUESTS POINT DISK", separated by tabs. For each line a new process starts
or resumes the session in HOME. It kills itself at point POINT, or at disk operation DISK (disk.c
must be loaded); 0 is never. At point -POINT it sends itself SIGTERM, which pauses the session. The
prompt is in CRASH_PROMPT: PARENT, BACKGROUND, TEAM, ISOLATED, CHECKED, RETURNED, ISOLATED_TEAM,
BOARD or CLAIMS. The requests to the model are appended to REQUESTS. Each answer is a line: exit
code, number of points passed, and the report as JSON, separated by tabs.

Points are before and after every append to the journal; before a file is renamed to its name and
after it is; at the first output of a command and at its end; before and after each use of the
task board.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from mudroom import (
    Agent,
    AssistantMessage,
    Children,
    Isolation,
    Session,
    ToolResultBlock,
    UserMessage,
)
from mudroom._adapters.boards.board import TaskBoard
from mudroom._adapters.boards.session_board import SessionBoard
from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.tools import make_builtin_tools
from mudroom._core.events import RunFinished, RunStarted, StoredEvent
from mudroom._core.ports import CommandResult
from mudroom._core.tools import Tool, ToolResult
from mudroom.errors import SessionPaused

SESSION = "00000000-0000-4000-8000-000000000000"
CHILDREN = "abc"
CODER = Agent(name="coder", description="Works on tasks.", tools=("todo",), claims_tasks=True)


class Points:
    """Counter of the points; it kills the process at one of them, or asks it to end if below 0."""

    def __init__(self, killed_at: int) -> None:
        self.killed_at = abs(killed_at)
        self._signal = signal.SIGTERM if killed_at < 0 else signal.SIGKILL
        self.passed = 0
        self._lock = Lock()

    def __call__(self) -> None:
        with self._lock:
            self.passed += 1
            if self.passed == self.killed_at:
                os.kill(os.getpid(), self._signal)

    def audit(self, event: str, _: object) -> None:
        """Handle an audit event: Python raises it before each rename."""
        if event == "os.rename":
            self()


class PointWrapper:
    """An object of the program with points around one of its methods."""

    def __init__(self, inner: Any, points: Points) -> None:
        self._inner = inner
        self._points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Journal(PointWrapper):
    async def append(self, *events: StoredEvent) -> int:
        self._points()
        position = await self._inner.append(*events)
        self._points()
        return position

    async def close(self) -> None:
        await self._inner.close()


class Workspace(PointWrapper):
    def write(self, path: str, data: bytes, **options: Any) -> bool:
        new = self._inner.write(path, data, **options)
        self._points()
        return new


class Sandbox(PointWrapper):
    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        def sink_with_point(chunk: bytes) -> None:
            self._points()
            sink(chunk)

        finished = await self._inner.run(command, timeout=timeout, sink=sink_with_point)
        self._points()
        return finished


class Context(PointWrapper):
    """The context of a tool call."""

    @property
    def workspace(self) -> Workspace:
        return Workspace(self._inner.workspace, self._points)

    @property
    def sandbox(self) -> Sandbox:
        return Sandbox(self._inner.sandbox, self._points)


def with_points(tool: Tool, points: Points) -> Tool:
    async def run(context: Any, arguments: Any) -> ToolResult:
        return await tool.run(Context(context, points), arguments)

    return msgspec.structs.replace(tool, run=run)


def make_effect_command(name: str) -> str:
    """Return a command with an effect that can be counted."""
    return f"echo {name} | tee -a effects.txt"


def parent(turn: int) -> Answer:
    return [
        [call("task", prompt=f"CHILD {name}") for name in CHILDREN],
        [call("bash", command=make_effect_command("parent")), call("read", file_path="a.txt")],
        [
            call("edit", file_path="a.txt", old_string="last", new_string="very last"),
            call("write", file_path="sum.txt", content="3\n"),
        ],
        "all three are done",
    ][turn]


def child(name: str, turn: int) -> Answer:
    file, deep = f"{name}.txt", f"deep/{name}/{name}.txt"
    return [
        [call("write", file_path=file, content=f"one {name}\n")],
        [
            call(
                "edit",
                file_path=file,
                old_string="one",
                new_string="one two",
            ),
            call("read", file_path="input.txt"),
        ],
        [call("bash", command=make_effect_command(f"{name}1"))],
        [
            call("edit", file_path=file, old_string="two", new_string="two three"),
            call("todo", todos=[]),
        ],
        [call("write", file_path=deep, content="first\n"), call("read", file_path=file)],
        [
            call("bash", command=make_effect_command(f"{name}2")),
            call("bash", command=make_effect_command(f"{name}3")),
        ],
        [
            call("edit", file_path=deep, old_string="first", new_string="first second"),
            call("glob", pattern="input*"),
        ],
        [
            call("edit", file_path=deep, old_string="second", new_string="second third"),
            call("grep", pattern="input", path="input.txt"),
        ],
        [call("write", file_path=file, content=f"at last {name}\n")],
        f"child {name} is done",
    ][turn]


def background_parent(request: Request, turn: int) -> Answer:
    """Start three children and two commands in the background, and wait for all."""
    if turn == 0:
        return [call("task", prompt=f"SMALL {name}", background=True) for name in CHILDREN]
    if turn == 1:
        commands = [make_effect_command(name) for name in ("first", "second")]
        return [call("bash", command=command, background=True) for command in commands]
    texts = str([message.content for message in request.messages])
    if texts.count("<task-id>") == 5 or "Nothing works in the background" in texts:
        return "all five have ended"
    return [call("wait", until="all")]


def team_parent(request: Request, turn: int) -> Answer:
    """Start two named children, write to each, and wait until both have read that."""
    if turn == 0:
        return [
            call("task", prompt=f"TEAM {name}", name=name, background=name == "ann")
            for name in ("ann", "ben")
        ]
    texts = str([message.content for message in request.messages])
    if turn == 1:
        return [
            call("send_message", to="ann", message="PARENT TO ann"),
            call("send_message", to="ben", message="PARENT TO ben"),
        ]
    if "ann has read" in texts and "ben has read" in texts:
        return "both have read"
    return [call("wait")] if "Nothing works in the background" not in texts else "none works"


def team_run(request: Request, turn: int) -> Answer:
    _, _, name = request.prompt.partition(" ")
    return team_child(request, name, turn) if name else team_parent(request, turn)


def team_child(request: Request, name: str, turn: int) -> Answer:
    """Write to the other one, and end when the message of the parent is read."""
    if turn == 0:
        other = {"ann": "ben", "ben": "ann"}[name]
        return [
            call("send_message", to=other, message=f"{name} TO {other}"),
            call("todo", todos=[]),
        ]
    texts = str([message.content for message in request.messages])
    return f"{name} has read" if f"PARENT TO {name}" in texts else f"{name} is idle"


def board_parent(turn: int) -> Answer:
    """Add tasks that depend on each other, work on two of them, and leave two to children."""
    return [
        [call("task_create", subject="one")]
        + [call("task_create", subject=f"{n}", blocked_by=[n - 1]) for n in (2, 3)]
        + [call("task_create", subject="4")],
        [call("claim_task", task_id=1), call("read", file_path="input.txt")],
        [call("complete_task", task_id=1), call("task_list")],
        [call("task", prompt="TAKE 2"), call("task", prompt="TAKE 4")],
        [call("task_update", task_id=3, status="in_progress", owner="me")],
        [call("complete_task", task_id=3)],
        "the board is done",
    ][turn]


def board_child(number: str, turn: int) -> Answer:
    """Claim a task; complete it unless it is task 4."""
    answers: list[Answer] = [[call("claim_task", task_id=number)]]
    if number != "4":
        answers.append([call("complete_task", task_id=number)])
    return [*answers, f"child {number} ends"][turn]


def claims_parent(turn: int) -> Answer:
    """Add three tasks, and start a child that claims them."""
    tasks = [call("task_create", subject=name) for name in ("one", "two")]
    answers: list[Answer] = [
        [*tasks, call("task_create", subject="three", blocked_by=[1])],
        [call("task", prompt="CLAIM", agent="coder", name="ann", background=True)],
    ]
    return answers[turn] if turn < len(answers) else "none works"


def claims_child(request: Request, _: int) -> Answer:
    """Report the task that the last message names."""
    task = re.search(r"Task #(\d+)", str(request.messages[-1].content))
    return f"report of task {task[1]}" if task else "CLAIM ends"


def add_board_points(points: Points) -> None:
    """Add a point before and after each use of the task board."""
    act = SessionBoard._act  # pyright: ignore[reportPrivateUsage]

    def act_with_points(self: SessionBoard, act_on: Callable[[TaskBoard], Any]) -> Any:
        points()
        result = act(self, act_on)
        points()
        return result

    SessionBoard._act = act_with_points  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


def small_child(name: str, turn: int) -> Answer:
    return [[call("bash", command=make_effect_command(name))], f"child {name} is done"][turn]


def isolated_parent(turn: int, prompt: str = "OWN") -> Answer:
    """Start three children that change lines of one file, each in an isolated workspace."""
    children = [call("task", prompt=f"{prompt} {name}", isolation="isolated") for name in CHILDREN]
    return [children, "all three are merged"][turn]


def isolated_child(name: str, turn: int) -> Answer:
    return [
        [call("edit", file_path="lines.txt", old_string=f"line {name}", new_string=f"by {name}")],
        [call("write", file_path=f"new/{name}.txt", content=f"new {name}\n")],
        f"child {name} is done",
    ][turn]


def conflicting_child(name: str, turn: int) -> Answer:
    """Insert a line at the place of the others; when the work comes back, keep all lines.

    The command that removes the marks may run twice: it may be interrupted once.
    """
    resolve = [call("bash", command="sed -i '/^|||||||/,/^=======$/d; /^[<>]\\{7\\} /d' lines.txt")]
    returned: list[Answer] = [resolve, resolve, f"child {name} has resolved it"]
    return [
        [call("edit", file_path="lines.txt", old_string="head\n", new_string=f"head\nby {name}\n")],
        f"child {name} is done",
        *returned * len(CHILDREN),
    ][turn]


def deciding_parent(request: Request, turn: int) -> Answer:
    """Start two children that change one line; decide on the work that conflicts, as asked."""
    how = request.prompt.split()[1]
    if turn == 0:
        return [call("task", prompt=f"CHANGE {name}", isolation="isolated") for name in "ab"]
    results = "\n".join(
        block.text
        for message in request.messages
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, ToolResultBlock)
    )
    decision: list[Answer] = [
        [call("merge", run=run, how=how, **({"side": "child"} if how == "side" else {}))]
        for run in re.findall(r"kept as run (\S+?)\. Decide", results)[:1]
    ]
    if how == "retry":
        landed = re.findall(r"in your files now: lines.txt, new/(\w)", results)[0]
        change = call("edit", file_path="lines.txt", old_string=f"by {landed}", new_string="line")
        decision.insert(0, [change])
    return [*decision, "decided"][turn - 1]


def changing_child(name: str, turn: int) -> Answer:
    """Change the line that the other one changes, and write a file."""
    return [
        [call("edit", file_path="lines.txt", old_string="line", new_string=f"by {name}")],
        [call("write", file_path=f"new/{name}.txt", content=f"new {name}\n")],
        f"child {name} is done",
    ][turn]


def isolated_team_parent(turn: int) -> Answer:
    """Start a named child with files of its own, write a file, and send the child on."""
    answers: list[Answer] = [
        [call("task", prompt="MATE", name="ann", isolation="isolated")],
        [call("write", file_path="lead.txt", content="of the lead\n")],
        [call("send_message", to="ann", message="GO ON")],
    ]
    return answers[turn] if turn < len(answers) else "both are merged"


def isolated_mate(turn: int) -> Answer:
    """Write a file; in the next run read it and that of the parent, and change it."""
    return [
        [call("write", file_path="own.txt", content="first run\n")],
        "ann has begun",
        [call("read", file_path="lead.txt"), call("read", file_path="own.txt")],
        [call("edit", file_path="own.txt", old_string="first", new_string="second")],
        "ann has gone on",
    ][turn]


def checked_child(name: str, turn: int) -> Answer:
    """Write a file, which the check refuses from the last child; repair it when it comes back."""
    word = "bad" if name == CHILDREN[-1] else "good"
    repair = [call("bash", command=f"sed -i s/bad/good/ new/{name}.txt")]
    return [
        [call("write", file_path=f"new/{name}.txt", content=f"{word} {name}\n")],
        f"child {name} is done",
        repair,
        repair,
        f"child {name} has repaired it",
    ][turn]


ANSWERS: dict[str, Callable[[Request, int], Answer]] = {
    "PARENT": lambda _, turn: parent(turn),
    "CHILD": lambda request, turn: child(request.prompt[-1], turn),
    "BACKGROUND": background_parent,
    "SMALL": lambda request, turn: small_child(request.prompt[-1], turn),
    "TEAM": team_run,
    "BOARD": lambda _, turn: board_parent(turn),
    "TAKE": lambda request, turn: board_child(request.prompt[-1], turn),
    "CLAIMS": lambda _, turn: claims_parent(turn),
    "CLAIM": claims_child,
    "ISOLATED": lambda _, turn: isolated_parent(turn),
    "RETURNED": lambda _, turn: isolated_parent(turn, "INSERT"),
    "CHECKED": lambda _, turn: isolated_parent(turn, "WRITE"),
    "WRITE": lambda request, turn: checked_child(request.prompt[-1], turn),
    "INSERT": lambda request, turn: conflicting_child(request.prompt[-1], turn),
    "OWN": lambda request, turn: isolated_child(request.prompt[-1], turn),
    "DECIDED": deciding_parent,
    "CHANGE": lambda request, turn: changing_child(request.prompt[-1], turn),
    "ISOLATED_TEAM": lambda _, turn: isolated_team_parent(turn),
    "MATE": lambda _, turn: isolated_mate(turn),
}
"""Answers of the conversations, by the first word of their prompt."""


def script(requests: str) -> Callable[[Request], Answer]:
    """Return a script that chooses the next step from the messages alone."""

    def answer(request: Request) -> Answer:
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        with open(requests, "a", encoding="utf-8") as file:
            file.write(f"{request.prompt} {turn}\n")
        return ANSWERS[request.prompt.split()[0]](request, turn)

    return answer


async def run_session(home: str, work: str, requests: str, points: Points) -> str:
    """Run or resume the session to its end; return the report as JSON."""
    path = Path(home, "sessions", f"{SESSION}.db")
    recorded = list(open_reader(path).read()) if path.exists() else []
    journal: Any = Journal(
        SqliteJournal.open(path, session=SESSION, create=not path.exists()), points
    )
    tools = [with_points(make_builtin_tools()[name], points) for name in ("write", "edit", "bash")]
    resume = SESSION if recorded else ""
    prompt = os.environ.get("CRASH_PROMPT", "PARENT")
    has_board = prompt in ("BOARD", "CLAIMS")
    if has_board:
        add_board_points(points)
    session = Session(
        model=ScriptedModel(script(requests)),
        cwd=work,
        home=home,
        journal=journal,
        tools=tools,
        resume=resume,
        id=SESSION,
        children=Children(board=has_board),
        agents=[CODER] if prompt == "CLAIMS" else [],
        isolation=Isolation(
            max_returns=0 if prompt.startswith("DECIDED") else len(CHILDREN),
            each_child=prompt.startswith("DECIDED"),
            check="! grep -rq bad new" if prompt == "CHECKED" else "",
        ),
    )
    async with session:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, session.pause)
        if any(isinstance(event, RunStarted) for event in recorded):
            await session.resume_unfinished()
        else:
            await session.run(prompt)
    ended = [event.report for event in open_reader(path).read() if isinstance(event, RunFinished)]
    return msgspec.json.encode(ended[-1]).decode()


def run_and_exit(home: str, work: str, requests: str, point: str, disk: str, output: int) -> None:
    """Run the session in this process; write the outcome to a descriptor."""
    points = Points(int(point))
    sys.addaudithook(points.audit)
    os.environ["DISK_DIE"] = disk
    try:
        report = asyncio.run(run_session(home, work, requests, points))
        os.write(output, f"0\t{points.passed}\t{report}".encode())
    except SessionPaused:
        os.write(output, f"{-signal.SIGTERM}\t{points.passed}\t".encode())
    except BaseException:  # noqa: BLE001  the test reports it
        os.write(output, f"1\t{points.passed}\t{traceback.format_exc()!r}".encode())
    os._exit(0)


def main() -> None:
    """Start a process for each line. All modules are imported once, before the first."""
    for line in sys.stdin:
        output, output_end = os.pipe()
        os.set_inheritable(output_end, False)
        pid = os.fork()
        if pid == 0:
            os.close(output)
            home, work, requests, point, disk = line.rstrip("\n").split("\t")
            run_and_exit(home, work, requests, point, disk, output_end)
        os.close(output_end)
        with open(output, encoding="utf-8") as file:
            text = file.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(text or f"{code}\t0\t", flush=True)


if __name__ == "__main__":
    main()
