"""One process that resumes a session: `python -m benchmarks.resumed_subject URL FOLDER SESSION`.

It prints the CPU seconds of one more prompt.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

_PROMPTS = 20


async def _measure(url: str, folder: str, session: str) -> float:
    os.environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
    from mudroom import Session

    async with Session(model="anthropic:bench", cwd=folder, resume=session, fork=True) as resumed:
        await resumed.run("bench:resumed:1:1:0:0:0:0:read")
        start = time.process_time()
        for _ in range(_PROMPTS):
            await resumed.run("bench:resumed:1:1:0:0:0:0:read")
        return (time.process_time() - start) / _PROMPTS


if __name__ == "__main__":
    print(asyncio.run(_measure(*sys.argv[1:])))
