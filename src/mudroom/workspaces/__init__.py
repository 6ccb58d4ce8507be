"""The files a run sees."""
