"""Slash commands of other programs, with mudroom's nearest equivalents."""

from __future__ import annotations

_COMMANDS = {
    "/add-dir": "mudroom works in one folder: start it with mudroom -C DIR.",
    "/approvals /allowed-tools": "Use /permissions to see the rules, /mode to change the mode.",
    "/background /bg": "Press Ctrl+B: what the model waits for goes to the background.",
    "/bashes": "Use /runs to list runs and background commands.",
    "/branch /fork": "Leave, then copy the session: mudroom --resume ID --fork-session.",
    "/bug /feedback": "Use mudroom doctor to check your setup.",
    "/checkpoint /restore /redo": "Use /rewind to return to an earlier prompt.",
    "/config /settings": "Leave, then use mudroom config. The settings file can also be edited.",
    "/editor /edit": "Press Ctrl+G to edit the line in $EDITOR.",
    "/effort /think /reasoning": "There is no such setting. Use /model to choose a model.",
    "/hooks": "Leave, then use mudroom hooks.",
    "/ide /terminal-setup": "There is no editor integration. Ctrl+J adds a line everywhere.",
    "/image": "Write the path of the image in your prompt, or @PATH.",
    "/login /logout /auth /connect": "Keys are environment variables: see mudroom models.",
    "/mcp /tools": "Leave, then use mudroom mcp. /context lists the tools.",
    "/plugin /plugins /extensions": "Leave, then use mudroom plugins.",
    "/memory /remember": "Write rules into AGENTS.md (/init), or keep one with /pin.",
    "/models": "Use /model.",
    "/plan": "Use /mode plan.",
    "/release-notes /update /upgrade": "Update mudroom with the program that installed it.",
    "/reset": "Use /clear.",
    "/review /security-review /pr-comments": "Write a prompt into .claude/commands/NAME.md; "
    "/NAME then sends it.",
    "/sessions /chat /continue /history": "Use /resume to continue another session.",
    "/share": "Use /export FILE.html.",
    "/stats /insights": "Use /cost or /view.",
    "/status": "The line below the prompt shows the state. Use /cost, /context or /doctor.",
    "/statusline": "Leave, then: mudroom config set status_line COMMAND",
    "/summarize /compress": "Use /compact.",
    "/themes /color": "Use /theme.",
    "/vi": "Use /vim.",
    "/todos": "Use /runs to list the runs.",
    "/worktree": "Start mudroom in the worktree: mudroom -C DIR.",
}
NEAREST_COMMANDS = {name: text for names, text in _COMMANDS.items() for name in names.split()}
