"""What is printed: progress trees, transcripts, reports, stream-json."""
