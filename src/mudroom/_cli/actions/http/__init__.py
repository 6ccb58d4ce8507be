"""mudroom over HTTP: flags and settings become sessions of the server, and its tokens."""
