"""The run: turns a brief into a report. It talks to ports only and knows no adapter."""
