"""Version of mudroom."""

__version__ = "0.1.0"
