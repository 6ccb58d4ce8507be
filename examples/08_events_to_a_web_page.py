"""Every event of a run, live, on a web page: server-sent events from a small server.

Run `python examples/08_events_to_a_web_page.py [port]` and open the address it prints.
"""

import sys
from pathlib import Path

import msgspec
from aiohttp import web

from mudroom import Session

PAGE = """<!doctype html><meta charset="utf-8"><title>mudroom</title><h1>mudroom</h1>
<pre id="log"></pre><script>
const log = document.getElementById("log"), events = new EventSource("/events");
events.onmessage = (message) => {
  const event = JSON.parse(message.data);
  const text = event.text ?? event.call?.name ?? event.report?.text ?? "";
  log.textContent += `${event.prompt_id ?? ""}  ${event.type}  ${text}\\n`;
};
events.addEventListener("end", () => events.close());
</script>"""


async def show_page(_: web.Request) -> web.Response:
    return web.Response(text=PAGE, content_type="text/html")


async def send_events(request: web.Request) -> web.StreamResponse:
    """Run one prompt per opened page; closing the page cancels it."""
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    await response.prepare(request)
    project = str(Path(__file__).parent.parent)
    prompt = "Find what testing framework this project uses."
    async with (
        Session(model="offline", cwd=project) as session,
        session.stream(prompt) as stream,
    ):
        async for event in stream:
            await response.write(b"data: " + msgspec.json.encode(event) + b"\n\n")
    await response.write(b"event: end\ndata:\n\n")
    return response


if __name__ == "__main__":
    app = web.Application()
    app.add_routes([web.get("/", show_page), web.get("/events", send_events)])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8420)
