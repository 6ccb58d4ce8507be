"""Every step of every how-to guide works, with a model that is scripted at the wire."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from aiohttp import web
from tests.docs.shell_page import STEP, PageShell, make_environ
from tests.examples.test_docs import answer, run_blocks
from tests.waiting import wait_until
from tests.worker_kinds import NEEDS_RAY

from mudroom import TextBlock, Usage
from mudroom.ports import StopReason
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.wire_formats import WireAnswer, openai_stream

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = "It is about mud."
WRITTEN_STORE = "postgresql://me@localhost/mudroom"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create a project with two commits."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "paper.md").write_text("# On Mud\n\nBy Ada Bootscraper\n")
    (project / "boots.py").write_text('"""Boots."""\n')
    for command in (
        "git init -q",
        "git add boots.py",
        "git -c user.name=a -c user.email=a@example.org commit -qm one",
        "git add paper.md",
        "git -c user.name=a -c user.email=a@example.org commit -qm two",
    ):
        subprocess.run(command.split(), cwd=project, check=True)
    (tmp_path / "home").mkdir()
    return project


@pytest.fixture
def port() -> Generator[str]:
    """Reserve a free port: no other program gets it, but a server that reuses addresses does."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield str(reserved.getsockname()[1])


@asynccontextmanager
async def open_local_server() -> AsyncGenerator[str]:
    """Serve as Ollama and as a server of OpenAI's protocol; yield host and port."""

    async def respond(request: web.BaseRequest) -> web.Response:
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "qwen3-8b"}]})
        if request.path == "/api/tags":
            return web.json_response({"models": [{"name": "qwen3:8b", "model": "qwen3:8b"}]})
        if request.path == "/api/show":
            return web.json_response({"capabilities": ["completion", "tools"], "model_info": {}})
        if request.path == "/v1/chat/completions":
            written = WireAnswer((TextBlock(TEXT),), "qwen3-8b", "a1", Usage(9, 4), StopReason.END)
            body = b"".join(openai_stream(written))
            return web.Response(body=body, content_type="text/event-stream")
        if request.path == "/api/chat":
            message = {"role": "assistant", "content": TEXT}
            line = {"model": "qwen3:8b", "message": message, "done": True}
            body = msgspec.json.encode({**line, "prompt_eval_count": 9, "eval_count": 4}) + b"\n"
            return web.Response(body=body, content_type="application/x-ndjson")
        return web.Response(status=404)

    runner = web.ServerRunner(web.Server(respond))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def follow(page: Path, shell: PageShell) -> None:
    """Carry out a page and end its programs."""
    try:
        shell.follow(page)
    finally:
        shell.close()


@pytest.mark.timeout(600)  # many programs, one after the other: slow on a busy machine
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=NEEDS_RAY if page.stem == "ray-cluster" else []) for page in PAGES],
    ids=lambda page: page.stem,
)
async def test_every_step_of_a_guide_works(
    page: Path, project: Path, tmp_path: Path, port: str, request: pytest.FixtureRequest
) -> None:
    env: dict[str, Any] = {**make_environ(tmp_path / "home"), "PORT": port}
    async with ModelServer(answer) as server, open_local_server() as local:
        addresses = {"127.0.0.1:11434": local, "127.0.0.1:8080": local}
        if page.stem == "serve":
            addresses["127.0.0.1:8700"] = f"127.0.0.1:{port}"
        if page.stem == "postgresql":
            addresses[WRITTEN_STORE] = request.getfixturevalue("postgres_url")
        if page.stem == "ray-cluster":
            addresses["10.0.0.5:6379"] = os.environ["RAY_ADDRESS"]
            env |= {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
        if page.stem != "local-model":
            env |= {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        await asyncio.to_thread(follow, page, PageShell(project, env, addresses))
        text = page.read_text("utf-8")
        saved = {step["content"] for step in STEP.finditer(text) if step["path"]}
        if blocks := [block for block in BLOCK.findall(text) if block not in saved]:
            await run_blocks(blocks, place=project, env=env)


def test_the_page_of_batches_is_true_with_the_offline_model(project: Path, tmp_path: Path) -> None:
    env = {**make_environ(tmp_path / "home"), "MUDROOM_MODEL": "offline"}
    follow(FOLDER / "batch.md", PageShell(project, env, {}))


async def test_the_web_server_has_one_writer_and_cancels_with_its_client(
    project: Path, tmp_path: Path, port: str
) -> None:
    page = (FOLDER / "web-server.md").read_text("utf-8")
    code = next(step["content"] for step in STEP.finditer(page) if step["path"] == "server.py")
    (project / "server.py").write_text(code)
    url = f"http://127.0.0.1:{port}/ask"

    async def answer_or_wait(request: ServerRequest) -> str:
        if b"Wait." in request.body:
            await asyncio.Event().wait()
        return TEXT

    async with ModelServer(answer_or_wait) as server, aiohttp.ClientSession() as client:
        env = {**make_environ(tmp_path / "home"), "PORT": port, "PYTHONUNBUFFERED": "1"}
        env |= {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "server.py", cwd=project, env=env, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout and b"Running on" in await process.stdout.readline()
            async with client.post(url, json={"prompt": "Greet."}) as first:
                session = first.headers["X-Session"]
                assert TEXT in await first.text()
            question = {"prompt": "Wait.", "session": session}
            async with client.post(url, json=question) as waiting:
                await wait_until(lambda: server.in_flight)
                async with client.post(url, json=question) as second:
                    assert second.status == 409
                waiting.close()
            await wait_until(lambda: not server.in_flight)
        finally:
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0


def test_the_workflow_runs_the_files_of_its_page(project: Path) -> None:
    files = {
        step["path"]: step["content"] for step in STEP.finditer((FOLDER / "ci.md").read_text())
    }
    workflow = yaml.safe_load(files[".github/workflows/review.yml"])
    commands = [step["run"] for step in workflow["jobs"]["review"]["steps"] if "run" in step]
    assert [command.split()[1] for command in commands if command.split()[1] in files] == [
        "ci/review.sh",
        "ci/verdict.py",
    ]
    assert shutil.which("sh")
    action = yaml.safe_load(files[".github/workflows/action.yml"])
    steps = action["jobs"]["review"]["steps"]
    (find,) = [step for step in steps if "id" in step]
    env = {"PATH": str(project), "GITHUB_OUTPUT": str(project / "output")}
    shell = [shutil.which("bash") or "", "-e", "-c", find["run"]]
    assert subprocess.run(shell, env=env).returncode == 1  # mudroom is not installed
    assert not (project / "output").exists()
    program = project / "mudroom"
    program.touch(0o755)
    assert subprocess.run(shell, env=env).returncode == 0
    assert (project / "output").read_text() == f"path={program}\n"
    (used,) = [step["with"] for step in steps if "claude-code-action" in step.get("uses", "")]
    assert used["path_to_claude_code_executable"] == f"${{{{ steps.{find['id']}.outputs.path }}}}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_guide_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
