"""The run: how a brief becomes a report. Talks to ports only, knows no adapter."""
