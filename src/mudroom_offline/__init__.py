"""The offline model: answers a few kinds of request by rules, without a key or network."""

from .model import OfflineModel

__all__ = ["OfflineModel"]
