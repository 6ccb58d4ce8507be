// The time scale of the lanes and its ticks.
"use strict";

const TICK_STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
  1800, 3600, 7200, 21600, 86400,
];

/** Return the seconds between two ticks of the axis, so that each label has room. */
const chooseTickStep = (span, width) => {
  const least = (64 / width) * span;
  return TICK_STEPS.find((each) => each >= least) ?? Math.ceil(least / 86400) * 86400;
};

/** Time scale of the lanes.
 *
 * Pauses between root runs, and while no process had the session open, are shortened.
 */
class TimeScale {
  constructor(fold, now) {
    const spans = fold.roots
      .map((run) => [run.started, run.finished || (app.live ? now : run.lastAt)])
      .sort((a, b) => a[0] - b[0]);
    const busy = [];
    for (const [from, to] of spans) {
      const last = busy.at(-1);
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else busy.push([from, to]);
    }
    for (const [from, to] of fold.pauses) {
      const at = busy.findIndex((piece) => piece[0] < from && to < piece[1]);
      if (at >= 0) busy.splice(at, 1, [busy[at][0], from], [to, busy[at][1]]);
    }
    const sum = busy.reduce((all, [from, to]) => all + to - from, 0) || 1;
    this.pieces = [];
    let at = 0;
    busy.forEach(([from, to], n) => {
      if (n) at += Math.min(from - busy[n - 1][1], sum * 0.02);
      this.pieces.push({ from, to, at });
      at += to - from;
    });
    this.length = at || 1;
  }

  /** Return the position of a moment in drawn seconds from the start. */
  positionOf(moment) {
    let found = this.pieces[0];
    for (const piece of this.pieces) if (piece.from <= moment) found = piece;
    return found ? found.at + Math.min(Math.max(moment - found.from, 0), found.to - found.from) : 0;
  }
}
