"""The offline model.

Answers a few kinds of request by rules, without a key and without a network.
"""

from .model import OfflineModel

__all__ = ["OfflineModel"]
