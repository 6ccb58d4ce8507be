"""Headless Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.waiting import block_until

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
TIMEOUT = 60.0


class Page:
    """One tab.

    Attributes:
        errors: errors and warnings of its console.
        requested: all URLs it requested.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.errors: list[str] = []
        self.requested: list[str] = []

    async def listen(self) -> None:
        async for message in self._socket:
            reply = json.loads(message.data)
            if (waiting := self._waiting.pop(reply.get("id", 0), None)) and not waiting.done():
                waiting.set_result(reply)
            self._note(reply.get("method", ""), reply.get("params", {}))

    def _note(self, method: str, params: Any) -> None:
        if method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(
                params["exceptionDetails"].get("exception", {}).get("description", "")
                or str(params)
            )
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.errors.append(str(params["args"]))

    async def send(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._waiting[self._number] = answer = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        async with asyncio.timeout(TIMEOUT):
            reply = await answer
        assert "error" not in reply, reply
        return reply["result"]

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url="about:blank")
        await self.send("Page.navigate", url=url)
        await self.wait_until("document.readyState === 'complete' && typeof app !== 'undefined'")

    async def run(self, script: str) -> Any:
        """Return the value of an expression in the page; promises are awaited."""
        reply = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    async def read_task_seconds(self) -> float:
        """Return the seconds of all tasks of the main thread; `Performance` must be enabled."""
        metrics = (await self.send("Performance.getMetrics"))["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    async def wait_until(self, script: str) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not await self.run(f"Boolean({script})"):  # noqa: ASYNC110  the page has no event of ours
                await asyncio.sleep(0.02)

    async def press(self, *keys: str) -> None:
        for key in keys:
            text = key if len(key) == 1 else ""
            await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
            await self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def click(self, selector: str) -> None:
        middle = (
            "e => { const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y "
            "+ r.height / 2] }"
        )
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

    async def set_size(self, width: int, height: int, *, phone: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    async def set_dark(self, on: bool) -> None:
        await self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}],
        )

    async def save_picture(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        await self.run(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        )
        path.write_bytes(
            base64.b64decode((await self.send("Page.captureScreenshot", format="png"))["data"])
        )


class Browser:
    """A browser in which each test opens a tab of its own; it starts with the first tab.

    Arguments:
        folder: an empty folder for its profiles.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._starts = 0

    @asynccontextmanager
    async def open_tab(self) -> AsyncGenerator[Page]:
        """Open a tab that shares nothing with other tabs; close it at the end."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        server = self._address.partition("/")[0]
        async with (
            aiohttp.ClientSession() as session,
            _connect(session, f"ws://{self._address}") as browser,
        ):
            context = await browser.send("Target.createBrowserContext", disposeOnDetach=True)
            target = await browser.send("Target.createTarget", url="about:blank", **context)
            tab = f"ws://{server}/devtools/page/{target['targetId']}"
            async with _connect(session, tab) as page:
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await page.send(f"{domain}.enable")
                await page.set_size(1440, 900)
                yield page

    def _start(self) -> None:
        assert CHROMIUM
        self._starts += 1
        profile = self._folder / f"profile-{self._starts}"
        port_file = profile / "DevToolsActivePort"
        self._process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        block_until(lambda: port_file.exists() and "\n" in port_file.read_text())
        port, path = port_file.read_text().split("\n")
        self._address = f"127.0.0.1:{port}{path}"

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@asynccontextmanager
async def _connect(session: aiohttp.ClientSession, url: str) -> AsyncGenerator[Page]:
    async with session.ws_connect(url, max_msg_size=0) as socket, asyncio.TaskGroup() as group:
        page = Page(socket)
        listening = group.create_task(page.listen())
        yield page
        listening.cancel()


@asynccontextmanager
async def open_browser(folder: Path) -> AsyncGenerator[Page]:
    """Run a browser with one tab and a new profile below `folder`; kill it at the end."""
    browser = Browser(folder)
    try:
        async with browser.open_tab() as page:
            yield page
    finally:
        browser.kill()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium here; .ci/run installs it")
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.kill()


@pytest.fixture
async def page(browser: Browser) -> AsyncGenerator[Page]:
    """Yield a new tab, and check that its console has no errors at the end."""
    async with browser.open_tab() as tab:
        yield tab
        assert tab.errors == []
