"""Printed output: progress trees, transcripts, reports, stream-json."""
