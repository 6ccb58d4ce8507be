"""A headless Chromium, driven over its own protocol: as much of it as these tests need."""

import asyncio
import base64
import json
import os
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
]
PATIENCE = 20.0


class Page:
    """One tab. `errors`: what its console complained of; `asked`: every address it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._number = socket, 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.errors: list[str] = []
        self.asked: list[str] = []

    async def listen(self) -> None:
        """Take in what the browser says, for as long as it says anything."""
        async for message in self._socket:
            said = json.loads(message.data)
            if (waiting := self._waiting.pop(said.get("id", 0), None)) and not waiting.done():
                waiting.set_result(said)
            self._note(said.get("method", ""), said.get("params", {}))

    def _note(self, method: str, given: Any) -> None:
        if method == "Network.requestWillBeSent":
            self.asked.append(given["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(
                given["exceptionDetails"].get("exception", {}).get("description", "") or str(given)
            )
        elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and given["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.errors.append(str(given["args"]))

    async def send(self, method: str, **given: Any) -> Any:
        """Ask the browser for something; what it answers."""
        self._number += 1
        self._waiting[self._number] = answer = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": given})
        async with asyncio.timeout(PATIENCE):
            said = await answer
        assert "error" not in said, said
        return said["result"]

    async def open(self, url: str) -> None:
        """Go somewhere, and wait until the page is loaded."""
        await self.send("Page.navigate", url="about:blank")
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && typeof app !== 'undefined'")

    async def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        said = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(PATIENCE):
            while not await self.run(f"Boolean({script})"):  # noqa: ASYNC110  the page has no event of ours
                await asyncio.sleep(0.02)

    async def press(self, *keys: str) -> None:
        """Keys, one after the other."""
        for key in keys:
            text = key if len(key) == 1 else ""
            await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
            await self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def click(self, selector: str) -> None:
        """A click of the mouse in the middle of the first such element."""
        middle = "e => { const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] }"
        area = await self.run(f"({middle})(document.querySelector({json.dumps(selector)}))")
        for kind in ("mousePressed", "mouseReleased"):
            await self.send(
                "Input.dispatchMouseEvent",
                type=kind,
                x=area[0],
                y=area[1],
                button="left",
                clickCount=1,
            )

    async def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """The window's size in pixels."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    async def dark(self, on: bool) -> None:
        """What the system prefers."""
        await self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}],
        )

    async def picture(self, path: Path) -> None:
        """What can be seen, as a PNG file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        await self.run(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        )
        path.write_bytes(
            base64.b64decode((await self.send("Page.captureScreenshot", format="png"))["data"])
        )


@asynccontextmanager
async def browser(folder: Path) -> AsyncGenerator[Page]:
    """A browser with one tab, in a profile of its own below `folder`; gone with all its processes at the end."""
    assert CHROMIUM
    profile = folder / "profile"
    told = profile / "DevToolsActivePort"
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not told.exists() or not told.read_text().count("\n"):  # noqa: ASYNC110  a file is all it gives us
                await asyncio.sleep(0.05)
        port = told.read_text().split("\n")[0]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/json/list") as answer,
        ):
            tab = next(each for each in await answer.json() if each["type"] == "page")
            async with (
                session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket,
                asyncio.TaskGroup() as group,
            ):
                page = Page(socket)
                listening = group.create_task(page.listen())
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await page.send(f"{domain}.enable")
                await page.size(1440, 900)
                yield page
                listening.cancel()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@pytest.fixture
async def page(tmp_path: Path) -> AsyncGenerator[Page]:
    """A browser's tab."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium here; .ci/run installs it")
    async with browser(tmp_path) as tab:
        yield tab
