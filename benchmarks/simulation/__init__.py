"""Simulation of sessions with up to a million children, from costs that are measured.

`python -m benchmarks.simulation measure` writes `costs.json`, `validate` compares the simulation
with real sessions, and `report` prints what is busy first. A difference between two days or two
hours says little about mudroom, because the speed of a machine changes: `validate` measures the
costs again just before it runs the real sessions.

The last comparison (23 November 2026, 2 cores, load 4 to 14 from other programs, medians of three
rounds): the simulated wall time was 11 %, 1 % and 1 % below the real one with 100, 1,000 and 10,000
children, and the share of it in which the session's process worked was 7 %, 13 % and 4 % above. Up
to 15 % are allowed. Single rounds with 10,000 children differed by -1 %, +27 % and -19 %: the speed
of the machine changed within them. A session of 10,000 children takes 61.8 G instructions, one of
1,000 7.4 G: a request takes 7 % more with 10,000 children, which the simulation leaves out.
"""
