"""Every event of a run, live, to a web page: server-sent events from a small server on this machine.

`python examples/08_events_to_a_web_page.py`, then open the address it prints; a port may be given.
"""

import asyncio
import sys
from pathlib import Path

import msgspec
from aiohttp import web

from mudroom import AnyEvent, Session

PAGE = """<!doctype html><meta charset="utf-8"><title>mudroom</title><h1>mudroom</h1><pre id="log"></pre><script>
const log = document.getElementById("log"), events = new EventSource("/events");
events.onmessage = (message) => {
  const event = JSON.parse(message.data);
  log.textContent += `${event.prompt_id ?? ""}  ${event.type}  ${event.text ?? event.call?.name ?? event.report?.text ?? ""}\\n`;
  if (event.type === "session_closed") events.close();
};
</script>"""


async def page(_: web.Request) -> web.Response:
    return web.Response(text=PAGE, content_type="text/html")


async def events(request: web.Request) -> web.StreamResponse:
    """One run for each page that is opened; closing the page ends it."""
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    await response.prepare(request)
    queue: asyncio.Queue[AnyEvent | None] = asyncio.Queue()

    async def work() -> None:
        session = Session(model="offline", cwd=str(Path(__file__).parent.parent))
        session.watch(queue.put_nowait)  # a watcher must neither wait nor raise
        async with session:
            await session.run("Find what testing framework this project uses.")
        queue.put_nowait(None)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        while (event := await queue.get()) is not None:
            await response.write(b"data: " + msgspec.json.encode(event) + b"\n\n")
    return response


if __name__ == "__main__":
    app = web.Application()
    app.add_routes([web.get("/", page), web.get("/events", events)])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8420)
