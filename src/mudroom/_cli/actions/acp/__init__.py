"""mudroom for editors: flags and settings become sessions of the ACP server."""
