"""The short help: it fits on one screen, with examples and the most used flags first."""

from __future__ import annotations

COMMAND_GROUPS = {
    "sessions": "runs show resume rename delete export record replay journal view",
    "tasks": "agents plugins batch fleet board workspaces serve",
    "settings": "init config models mcp acp hooks permissions trust doctor completion",
}

_LISTING = "\n".join(f"{name:9} {commands}" for name, commands in COMMAND_GROUPS.items())

SHORT_HELP = f"""\
mudroom splits a large task into small ones, each with its own clean context.

  mudroom                 start an interactive session
  mudroom -p "find what testing framework this project uses"
  git diff | mudroom -p "review this" -o json
  mudroom -c              continue the last session of this folder
  mudroom view            open the run viewer in a browser

  -p, --print PROMPT      answer one prompt and exit; piped text is added to it
  -C DIR                  work in this folder
  -m, --model MODEL       anthropic:sonnet, ollama:qwen3:8b, offline, …
  -c, --continue          continue the last session of this folder
  -r, --resume ID|NAME    resume a session; without an ID, pick from a list
  -o, --output-format F   text, json, stream-json
  --permission-mode M     default, acceptEdits, plan, dontAsk, bypassPermissions

{_LISTING}

mudroom --help-all      every flag; mudroom help COMMAND explains one command
"""
