// The card of a compaction: the context before and after it.
"use strict";

const KEPT = {
  messages: "message of the user",
  rules: "rule",
  files: "file",
  children: "child run",
  failures: "failure",
};

/** Return blocks with estimated tokens. */
const estimateBlocks = (blocks) =>
  blocks.map((each) => ({ ...each, tokens: each.bytes / BYTES_PER_TOKEN }));

const drawCompaction = (item) => {
  const { run, parts } = item;
  const before = estimateBlocks(conversationBlocks(app.fold, run, (each) => each === item));
  const after = estimateBlocks(historyBlocks(item.messages, "kept by the compaction"));
  const maximum = Math.max(item.before, item.after, 1);
  const next = run.items.find((each) => each.kind === "turn" && each.turn > item.turn);
  const kept = Object.entries(KEPT)
    .filter(([name]) => parts[name])
    .map(([name, words]) => plural(parts[name], words));
  if (item.cause === "overflow") kept.unshift("the provider refused the request as too long");
  kept.push(parts.notes_tokens ? "notes of the model" : "no notes of a model");
  return h(
    "article",
    { class: "call compaction" },
    h(
      "div",
      { class: "callhead" },
      h("i", { class: "dot stopped" }),
      h("b", null, "context compacted"),
      h(
        "span",
        { class: "figure" },
        `${formatTokens(item.before)} → ${formatTokens(item.after)} tokens`,
      ),
    ),
    h(
      "div",
      { class: "callbody" },
      drawContextSide(
        "before",
        sumByKind(before),
        item.before,
        maximum,
        place(run, { turn: item.turn }, "context"),
      ),
      drawContextSide(
        "after",
        sumByKind(after),
        item.after,
        maximum,
        next && place(run, { turn: next.turn }, "context"),
      ),
      h("p", { class: "note" }, kept.join(" · ")),
    ),
  );
};

const drawContextSide = (words, sums, tokens, maximum, go) => {
  const [bar, legend] = drawShares(sums, Math.max(tokens, 1), `Shares of the context ${words}`);
  bar.style.setProperty("width", `${Math.max(2, (100 * tokens) / maximum)}%`);
  const name = `context ${words}`;
  return h(
    "div",
    { class: "context-side" },
    go ? goButton(go, { class: "more" }, name) : h("span", null, name),
    bar,
    legend,
  );
};
