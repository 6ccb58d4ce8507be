// The list "Look at first": failures, stops, refusals and other remarkable facts of a session.
"use strict";

const MAX_PER_KIND = 4; // lines of one kind

/** Return the lines of the list, the most important first, as {tone, words, more, go}. */
const findAttention = (fold) => {
  const version = `${fold.events} ${app.live}`;
  if (fold.attention?.version !== version)
    fold.attention = { version, lines: listAttention(fold) };
  return fold.attention.lines;
};

const listAttention = (fold) => {
  const runs = [...fold.runs.values()];
  const found = surveyItems(fold);
  return [
    ...describeRuns(runs, "failed", "failed"),
    ...describeRuns(runs, "unfinished", "refused"),
    ...describeRuns(runs, "stopped", "stopped"),
    ...describeCalls(found.failedCalls, "failed"),
    ...describeCalls(found.refusedCalls, "refused"),
    ...describeTurns(found),
    ...describeCompactions(found.compactions),
    ...describeLargest(fold, runs),
  ];
};

/** Return what the summary shows of the items of all runs, found in one pass. */
const surveyItems = (fold) => {
  if (fold.survey?.events === fold.events) return fold.survey;
  const found = {
    events: fold.events,
    failedCalls: new Map(),
    refusedCalls: new Map(),
    failedTurns: [],
    retriedTurns: [],
    compactions: [],
    changedFiles: new Map(),
  };
  for (const run of fold.runs.values()) for (const item of run.items) surveyItem(found, item);
  fold.survey = found;
  return found;
};

const surveyItem = (found, item) => {
  if (item.kind === "call") {
    if (item.refused) addCall(found.refusedCalls, item);
    else if (item.result?.error && !hasFailedChild(item)) addCall(found.failedCalls, item);
    for (const path of item.changed) found.changedFiles.set(path, item);
  } else if (item.kind === "turn") {
    if (item.error) found.failedTurns.push(item);
    if (item.retries.length) found.retriedTurns.push(item);
  } else if (item.kind === "compacted") found.compactions.push(item);
};

const addCall = (byTool, item) => {
  const calls = byTool.get(item.tool);
  if (calls) calls.push(item);
  else byTool.set(item.tool, [item]);
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

/** Return true if a call failed because its child failed: the list has a line for the child. */
const hasFailedChild = (item) => item.child?.state === "failed";

const describeEnd = (run) => (run.report ? reasonPredicate(run.report.reason) : "did not finish");

/** Return one line per tool for failed or refused calls. */
const describeCalls = (byTool, verb) =>
  [...byTool]
    .sort((a, b) => b[1].length - a[1].length)
    .slice(0, MAX_PER_KIND)
    .map(([tool, items]) => ({
      tone: verb,
      words: `${plural(items.length, "call")} of ${tool} ${verb}`,
      more: [callTitle(items[0]), items[0].result?.text].filter(Boolean).join(": "),
      go: place(items[0].run, items[0]),
    }));

/** Return lines for failed and repeated model calls; the line of a failed run has its last error. */
const describeTurns = ({ failedTurns, retriedTurns }) => {
  const failed = failedTurns.filter((step) => step.run.state !== "failed");
  const retries = retriedTurns.reduce((sum, step) => sum + step.retries.length, 0);
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
      more: retriedTurns[0].retries[0].error ?? "",
      go: place(retriedTurns[0].run, retriedTurns[0]),
    },
  ].filter(Boolean);
};

const describeCompactions = (items) =>
  items.slice(0, MAX_PER_KIND).map((item) => ({
    tone: "plain",
    words: `${runName(item.run)} ${item.run.id}: the context was compacted`,
    more: `${formatTokens(item.before)} → ${formatTokens(item.after)} tokens, before turn ${item.turn + 1}`,
    go: place(item.run, item),
  }));

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
