"""The control protocol of Claude's agent SDKs, which start mudroom as their CLI."""
