"""mudroom over HTTP: turns flags and settings into the server's sessions, and edits its tokens."""
