"""`mudroom view`: the run viewer on a local server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from ..._viewer.listener import listen
from ..._viewer.sources import SessionSource, StoredSessions, make_session_link
from ..output.progress import print_notice
from .load_settings import load_settings
from .session_store import choose_session
from .user_store import open_store


def serve_viewer(
    session: str | None,
    *,
    target: str | None,
    host: str,
    port: int,
    open_browser: bool,
    store: str | None,
) -> None:
    """Serve the viewer until interrupted, or write a page that needs no server."""
    if target:
        from .export import export_html

        export_html(session or "", target, store=store)
        return
    home = load_settings(".", store=store).home
    session_id = asyncio.run(choose_session(home, session or ""))
    source = StoredSessions(open_store(home), home)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(source, session_id, host=host, port=port, open_browser=open_browser))


async def _serve(
    source: SessionSource, session_id: str, *, host: str, port: int, open_browser: bool
) -> None:
    listener = listen(host=host, port=port)
    url = await make_session_link(listener.address.url, source, session_id)
    print(url, flush=True)

    from ..._viewer.server import serve  # slow to import; a browser that connects now waits

    async with serve(source, listener):
        print_notice("Viewer running. Press Ctrl+C to stop.")
        if open_browser and can_open_browser(os.environ):
            import webbrowser

            await asyncio.to_thread(webbrowser.open, url)
        await asyncio.Event().wait()


def can_open_browser(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Return whether this machine can show a browser: not over SSH, not in CI."""
    if environ.get("SSH_CONNECTION") or environ.get("CI"):
        return False
    if platform in ("darwin", "win32"):
        return True
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")
    return any(environ.get(variable) for variable in screens)
