"""Rows of the table of figures."""

from __future__ import annotations

from msgspec import Struct


class Row(Struct, frozen=True):
    """One figure.

    Arguments:
        must, aim: the limit and the goal; upper ones, unless `least` is true.
        floor: the figure without a harness.
    """

    name: str
    unit: str
    measured: float
    must: float
    aim: float | None = None
    floor: float | None = None
    least: bool = False

    @property
    def ratio(self) -> float:
        """The figure relative to the floor; the figure itself without a floor."""
        return self.measured / self.floor if self.floor else self.measured

    @property
    def held(self) -> bool:
        """True if the figure is within its limit."""
        return self.measured >= self.must if self.least else self.measured <= self.must
