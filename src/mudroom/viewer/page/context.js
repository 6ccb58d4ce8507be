// The context of a model call as blocks, and the ledger: the text that children read, and the
// reports that they returned.
"use strict";

/** Return the blocks of the request of one turn, in the order the model read them. */
const contextBlocks = (fold, run, turn) => [
  ...prefixBlocks(run),
  ...conversationBlocks(fold, run, turn),
];

const prefixBlocks = (run) => {
  const agent = run.brief.agent;
  const blocks = [];
  if (agent.instructions)
    blocks.push(makeBlock("system", `instructions of ${agent.name}`, agent.instructions));
  if (run.brief.tools?.length)
    blocks.push(
      makeBlock(
        "tools",
        `${plural(run.brief.tools.length, "tool")} offered`,
        run.brief.tools.join(", "),
      ),
    );
  return blocks;
};

const makeBlock = (kind, label, text, item = null) => ({
  kind,
  label,
  text,
  item,
  bytes: byteLength(text),
  open: false,
});

/** Return the messages of a run before the answer of `turn`.
 *
 * The runs it continues come first, unless `own` is set.
 */
const conversationBlocks = (fold, run, turn, own = false) => {
  const before = own ? undefined : fold.runs.get(run.continues);
  const blocks = before
    ? conversationBlocks(fold, before, Infinity, before.brief.compacts).map((each) => ({
        ...each,
        past: true,
      }))
    : historyBlocks(run.brief.history ?? []);
  let results = [];
  let notes = [];
  const close = () => {
    blocks.push(...results, ...notes);
    [results, notes] = [[], []];
  };
  for (const item of run.items) {
    if (item.kind === "turn") {
      close();
      if (item.turn >= turn) return blocks;
    } else if (item.kind === "prompt")
      blocks.push(makeBlock("prompt", "the prompt", item.text, item));
    else if (item.kind === "note")
      notes.push(makeBlock("note", `note of the ${item.origin}`, item.text, item));
    else if (item.kind === "thinking")
      blocks.push(makeBlock("thinking", `thinking of turn ${item.turn}`, item.text, item));
    else if (item.kind === "provider")
      blocks.push(makeBlock("provider", `the provider in turn ${item.turn}`, item.text, item));
    else if (item.kind === "text")
      blocks.push(makeBlock("answer", `text of turn ${item.turn}`, item.text, item));
    else if (item.kind === "call") {
      blocks.push(
        makeBlock(
          "call",
          `${item.call.name} ${callTitle(item)}`,
          JSON.stringify(item.call.arguments ?? {}, null, 1),
          item,
        ),
      );
      if (item.result)
        results.push(
          makeBlock(
            startsRun(item) ? "report" : "result",
            `${item.call.name} ${callTitle(item)}`,
            withPlaceholders(item.result.text, item.result.images),
            item,
          ),
        );
    }
  }
  close();
  return blocks;
};

const historyBlocks = (history) =>
  history.flatMap((message) =>
    message.content.map((each) => {
      const texts = {
        tool_call: () => JSON.stringify(each.arguments),
        tool_result: () => withPlaceholders(each.text, each.images),
        image: () => imagePlaceholder(each),
      };
      const text = texts[each.type]?.() ?? each.text;
      const kinds = {
        text: message.type === "user" ? "prompt" : "answer",
        image: "prompt",
        tool_call: "call",
        tool_result: "result",
      };
      const kind = kinds[each.type] ?? each.type;
      return { ...makeBlock(kind, "earlier in the conversation", text), past: true };
    }),
  );

/** Return the sums of the ledger, the same as `mudroom show` prints. */
const computeLedger = (fold) => {
  const children = [...fold.runs.values()].filter((run) => run.depth > 0);
  const read = Math.round(fold.read.bytes / BYTES_PER_TOKEN);
  const returned = Math.round(fold.returned.bytes / BYTES_PER_TOKEN);
  const parent = fold.growth.reduce((maximum, step) => Math.max(maximum, step.input), 0);
  return {
    children: children.length,
    readLines: fold.read.lines,
    readBytes: fold.read.bytes,
    read,
    returnedLines: fold.returned.lines,
    returnedBytes: fold.returned.bytes,
    returned,
    parent,
    without: parent ? Math.max(0, parent - returned) + read : 0,
    childTokens: children.reduce((sum, run) => sum + totalTokens(run.usage), 0),
  };
};

/** Return the parent's context size at each model call: as it was, and without children. */
const computeGrowth = (fold) =>
  fold.growth.map((step) => ({
    ...step,
    with: step.input,
    without:
      Math.max(0, step.input - step.returned / BYTES_PER_TOKEN) + step.read / BYTES_PER_TOKEN,
  }));
