"""mudroom as the CLI that agent SDKs start: turns flags and settings into the server's sessions."""
