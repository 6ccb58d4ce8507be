"""Metrics of the server in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counts since the start of the server."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, _Labels], float] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a count."""
        key = (name, tuple(sorted(labels.items())))
        self._counts[key] = self._counts.get(key, 0.0) + amount

    def render(self, gauges: Mapping[str, float]) -> str:
        """Return all counts, and `gauges`: present numbers by name."""
        lines: list[str] = []
        for name in sorted({name for name, _ in self._counts}):
            lines.append(f"# TYPE {name} counter")
            rows = sorted(item for item in self._counts.items() if item[0][0] == name)
            lines += [_format_row(name, labels, amount) for (_, labels), amount in rows]
        for name, amount in gauges.items():
            lines += [f"# TYPE {name} gauge", _format_row(name, (), amount)]
        return "\n".join([*lines, ""])


def _format_row(name: str, labels: Iterable[tuple[str, str]], amount: float) -> str:
    texts = [f'{label}="{_escape(value)}"' for label, value in labels]
    return f"{name}{'{' + ','.join(texts) + '}' if texts else ''} {amount:g}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
