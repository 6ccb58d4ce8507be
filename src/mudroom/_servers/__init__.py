"""Servers: other programs drive a session by a protocol."""
