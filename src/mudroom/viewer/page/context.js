// What a model saw at a step, block by block; and what stayed outside of the parent's context.
"use strict";

/** Blocks of the request of turn `turn` of a run, in the order the model read them. */
const contextAt = (fold, run, turn) => [...opening(run), ...conversation(fold, run, turn)];

const opening = (run) => {
  const agent = run.brief.agent;
  const blocks = [];
  if (agent.instructions) blocks.push(block("system", `instructions of ${agent.name}`, agent.instructions));
  if (run.brief.tools?.length) blocks.push(block("tools", `${plural(run.brief.tools.length, "tool")} offered`, run.brief.tools.join(", ")));
  return blocks;
};

const block = (kind, label, text, item = null) => ({ kind, label, text, item, bytes: size(text), open: false });

/** The messages of a run before the answer of turn `turn`; what it goes on from comes first, unless only its own are wanted. */
const conversation = (fold, run, turn, own = false) => {
  const before = own ? undefined : fold.runs.get(run.continues);
  const blocks = before ? conversation(fold, before, Infinity, before.brief.compacts).map((each) => ({ ...each, past: true })) : past(run.brief.history ?? []);
  let results = [];
  let told = [];
  const close = () => {
    blocks.push(...results, ...told);
    [results, told] = [[], []];
  };
  for (const item of run.items) {
    if (item.kind === "turn") {
      close();
      if (item.turn >= turn) return blocks;
    } else if (item.kind === "prompt") blocks.push(block("prompt", "the prompt", item.text, item));
    else if (item.kind === "told") told.push(block("told", `a word of the ${item.origin}'s`, item.text, item));
    else if (item.kind === "thinking") blocks.push(block("thinking", `thinking of turn ${item.turn}`, item.text, item));
    else if (item.kind === "text") blocks.push(block("answer", `words of turn ${item.turn}`, item.text, item));
    else if (item.kind === "call") {
      blocks.push(block("call", `${item.call.name} ${telling(item.call)}`, JSON.stringify(item.call.arguments ?? {}, null, 1), item));
      if (item.result) results.push(block(item.tool === "task" ? "report" : "result", `${item.call.name} ${telling(item.call)}`, item.result.text, item));
    }
  }
  close();
  return blocks;
};

const past = (history) =>
  history.flatMap((message) =>
    message.content.map((each) => {
      const text = each.type === "call" ? JSON.stringify(each.arguments) : each.text;
      return { ...block(each.type === "text" && message.type === "user" ? "prompt" : each.type === "text" ? "answer" : each.type, "earlier in the conversation", text), past: true };
    }),
  );

/** The sums of the ledger, as `mudroom show` tells them. */
const ledgerOf = (fold) => {
  const children = [...fold.runs.values()].filter((run) => run.depth > 0);
  const taken = Math.round(fold.taken.bytes / BYTES_PER_TOKEN);
  const returned = Math.round(fold.returned.bytes / BYTES_PER_TOKEN);
  const parent = fold.growth.reduce((most, step) => Math.max(most, step.input), 0);
  return {
    children: children.length,
    takenLines: fold.taken.lines,
    takenBytes: fold.taken.bytes,
    taken,
    returnedLines: fold.returned.lines,
    returnedBytes: fold.returned.bytes,
    returned,
    parent,
    without: parent ? Math.max(0, parent - returned) + taken : 0,
    childTokens: children.reduce((sum, run) => sum + total(run.usage), 0),
  };
};

/** The parent's context at each of its model calls: as it was, and as it would have been had it read all itself. */
const growthOf = (fold) =>
  fold.growth.map((step) => ({
    ...step,
    with: step.input,
    without: Math.max(0, step.input - step.returned / BYTES_PER_TOKEN) + step.taken / BYTES_PER_TOKEN,
  }));
