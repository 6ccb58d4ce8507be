"""Claude Code's names and shapes: its terms for tools, and its transcripts."""
