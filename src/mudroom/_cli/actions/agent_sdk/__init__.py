"""mudroom as the CLI of the agent SDKs: flags and settings become sessions of the server."""
