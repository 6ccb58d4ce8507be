"""A fan-out whose account runs out of money: each child learns of it at once, and the user, too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from mudroom import Reason, Report, Session, ToolCallBlock
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

CHILDREN = 20
EMPTY = Fault(
    status=429,
    body=json.dumps(
        {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    ).encode(),
)
TASKS = tuple(ToolCallBlock(f"t{n}", "task", {"prompt": f"CHILD {n}"}) for n in range(CHILDREN))


async def fan_out(folder: Path, model: str) -> tuple[Report, list[str], float]:
    """Return the report, the models that were asked, and the seconds that it took."""

    def answer(request: ServerRequest) -> ServerAnswer:
        if request.number == 1:
            return TASKS
        return "A report." if request.model == "full" else EMPTY

    async with ModelServer(answer) as server:
        names = {"OPENAI": f"{server.url}/v1", "ANTHROPIC": server.url}
        environ = {f"{name}_API_KEY": "k" for name in names} | {
            f"{name}_BASE_URL": url for name, url in names.items()
        }
        async with Session(
            model=model,
            environ=environ,
            cwd=str(folder),
            home=str(folder / "home"),
            journal="memory",
        ) as session:
            report = await session.run("PARENT")
        asked = [request.model for request in server.requests]
        return report, asked, asyncio.get_running_loop().time()


def test_every_child_is_told_of_an_empty_account_within_two_seconds(tmp_path: Path) -> None:
    report, asked, seconds = run_virtual(fan_out(tmp_path, "openai:empty"))
    assert report.reason is Reason.ERROR
    assert "Add credit" in report.error
    assert len(asked) <= 1 + 2 * (CHILDREN + 1)
    assert seconds < 2


def test_every_child_goes_on_with_the_fallback_at_once(tmp_path: Path) -> None:
    report, asked, seconds = run_virtual(fan_out(tmp_path, "openai:empty,anthropic:full"))
    assert (report.reason, report.text) == (Reason.GOAL, "A report.")
    assert asked.count("empty") <= 1 + 2 * (CHILDREN + 1)
    assert seconds < 2
