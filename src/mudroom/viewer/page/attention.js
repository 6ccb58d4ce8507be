// The list "Look at first": failures, stops, refusals and other remarkable facts of a session.
"use strict";

const MAX_PER_KIND = 4; // lines of one kind

/** Return the lines of the list, the most important first, as {tone, words, more, go}. */
const findAttention = (fold) => {
  const runs = [...fold.runs.values()];
  return [
    ...describeRuns(runs, "failed", "failed"),
    ...describeRuns(runs, "unfinished", "refused"),
    ...describeRuns(runs, "stopped", "stopped"),
    ...describeCalls(runs, "failed", (item) => isFailedCall(item) && !hasFailedChild(item)),
    ...describeCalls(runs, "refused", (item) => item.refused),
    ...describeTurns(runs),
    ...describeCompactions(runs),
    ...describeLargest(fold, runs),
  ];
};

const place = (run, item = null, tab = "transcript") => ({
  run: run.id,
  turn: item?.turn ?? 0,
  call: item?.kind === "call" ? item.id : "",
  tab,
});

const limitLines = (lines) =>
  lines.length <= MAX_PER_KIND
    ? lines
    : [
        ...lines.slice(0, MAX_PER_KIND - 1),
        {
          ...lines[MAX_PER_KIND - 1],
          words: `${plural(lines.length - MAX_PER_KIND + 1, "more run")} like these`,
          more: "",
        },
      ];

const describeRuns = (runs, state, tone) =>
  limitLines(
    runs
      .filter((run) => displayState(run, app.live) === state)
      .map((run) => ({
        tone,
        words: `${runName(run)} ${run.id} ${describeEnd(run)}`,
        more: run.report?.error || runTitle(run),
        go: place(run, run.items.at(-1)),
      })),
  );

const isFailedCall = (item) => item.result?.error && !item.refused;

/** Return true if a call failed because its child failed: the list has a line for the child. */
const hasFailedChild = (item) => item.child?.state === "failed";

const ENDINGS = {
  ERROR: "failed",
  LOST: "was lost",
  TIMEOUT: "reached its time limit",
  MAX_TURNS: "reached its limit of turns",
  BUDGET: "reached its budget",
  CANCELLED: "was stopped",
  LOOP: "repeated itself and was stopped",
};
const describeEnd = (run) =>
  run.report ? (ENDINGS[run.report.reason] ?? `ended with ${run.report.reason}`) : "did not finish";

/** Return one line per tool for the calls that `isMeant` accepts. */
const describeCalls = (runs, tone, isMeant) => {
  const byTool = new Map();
  for (const run of runs)
    for (const item of run.items)
      if (item.kind === "call" && isMeant(item))
        byTool.set(item.tool, [...(byTool.get(item.tool) ?? []), item]);
  const verb = tone === "failed" ? "failed" : "refused";
  return [...byTool]
    .sort((a, b) => b[1].length - a[1].length)
    .slice(0, MAX_PER_KIND)
    .map(([tool, items]) => ({
      tone,
      words: `${plural(items.length, "call")} of ${tool} ${verb}`,
      more: [callTitle(items[0]), items[0].result?.text].filter(Boolean).join(": "),
      go: place(items[0].run, items[0]),
    }));
};

/** Return lines for failed and repeated model calls; the line of a failed run has its last error. */
const describeTurns = (runs) => {
  const steps = runs.flatMap((run) => run.items.filter((item) => item.kind === "turn"));
  const failed = steps.filter((step) => step.error && step.run.state !== "failed");
  const retried = steps.filter((step) => step.retries.length);
  const retries = retried.reduce((sum, step) => sum + step.retries.length, 0);
  return [
    failed.length && {
      tone: "failed",
      words: `${plural(failed.length, "model call")} failed`,
      more: failed[0].error,
      go: place(failed[0].run, failed[0]),
    },
    retries && {
      tone: "stopped",
      words: `${plural(retries, "model call")} repeated`,
      more: retried[0].retries[0].error ?? "",
      go: place(retried[0].run, retried[0]),
    },
  ].filter(Boolean);
};

const describeCompactions = (runs) => {
  const items = runs.flatMap((run) => run.items.filter((item) => item.kind === "compacted"));
  return items.slice(0, MAX_PER_KIND).map((item) => ({
    tone: "plain",
    words: `${runName(item.run)} ${item.run.id}: the context was compacted`,
    more: `${formatTokens(item.before)} → ${formatTokens(item.after)} tokens, before turn ${item.turn + 1}`,
    go: place(item.run, item),
  }));
};

/** Return a line for a child that used far more tokens than its siblings. */
const describeLargest = (fold, runs) => {
  const children = runs.filter((run) => run.depth > 0);
  const sum = children.reduce((all, run) => all + totalTokens(run.usage), 0);
  if (children.length < 3 || !sum) return [];
  const largest = children.reduce((a, b) => (totalTokens(b.usage) > totalTokens(a.usage) ? b : a));
  const share = totalTokens(largest.usage) / sum;
  if (share < 0.4) return [];
  return [
    {
      tone: "plain",
      words: `${runName(largest)} ${largest.id} used ${formatShare(share, 1)} of the children's tokens`,
      more: runTitle(largest),
      go: place(largest),
    },
  ];
};
