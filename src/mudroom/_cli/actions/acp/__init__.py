"""mudroom for editors: turns flags and settings into sessions of the ACP server."""
