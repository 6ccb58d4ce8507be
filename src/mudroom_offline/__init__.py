"""The offline model: rules in the place of a language model, so that everything else can be tried without a key."""

from .model import OfflineModel

__all__ = ["OfflineModel"]
