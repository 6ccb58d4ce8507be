"""The help that fits on a screen: examples first, then what is used often."""

from __future__ import annotations

SHORT_HELP = """\
mudroom cuts a big task into small ones, each in a clean context of its own.

  mudroom                 a prompt to type at
  mudroom -p "find what testing framework this project uses"
  git diff | mudroom -p "review this" -o json
  mudroom -c              go on where you left off
  mudroom view            see in a browser what the children did

  -p, --print PROMPT      answer one prompt and exit; piped text joins it
  -C DIR                  work in this folder
  -m, --model MODEL       anthropic:sonnet, ollama:qwen3:8b, offline, …
  -c, --continue          go on with the last session of this folder
  -r, --resume ID|NAME    go on with a session; alone it asks which
  -o, --output-format F   text, json, stream-json
  --permission-mode M     default, acceptEdits, plan, dontAsk, bypassPermissions

sessions  runs show resume rename delete export record replay journal view
settings  init config models agents permissions trust doctor completion

mudroom --help-all      every flag; mudroom help COMMAND explains one command,
                        mudroom help --man is the manual
"""
