// The context of a model call as blocks, and the ledger: the text that children read, and the
// reports that they returned.
"use strict";

/** Return the blocks of the request of one turn, in the order the model read them. */
const contextBlocks = (fold, run, turn) => {
  // A request that was too long has a second one in the same turn.
  const step = run.items.findLast((item) => item.kind === "turn" && item.turn === turn);
  return [
    ...headBlocks(fold, run, step?.head),
    ...conversationBlocks(fold, run, (item) => item === step),
  ];
};

/** Return the system prompt and the tools of a head, null if the record lacks one of them. */
const resolveHead = (fold, id) => {
  const head = fold.heads.get(id);
  const parts = [head?.system, ...(head?.tools ?? [])].map((part) => fold.parts.get(part));
  if (!head || parts.includes(undefined)) return null;
  const [system, ...tools] = parts;
  return { system, tools, serverTools: head.server_tools ?? [] };
};

const headBlocks = (fold, run, id) => {
  const head = resolveHead(fold, id);
  const { agent, tools } = run.brief;
  const instructions = agent.instructions ?? "";
  const label = `instructions of ${agent.name}`;
  if (!head)
    return [
      instructions && makeBlock("system", label, instructions),
      tools?.length &&
        makeBlock("tools", `names of ${plural(tools.length, "tool")}`, tools.join(", ")),
    ].filter(Boolean);
  const isSplit = instructions && head.system.startsWith(instructions);
  const rest = isSplit ? head.system.slice(instructions.length).trimStart() : head.system;
  return [
    isSplit && makeBlock("system", label, instructions),
    rest && makeBlock("files", isSplit ? "context files and environment" : "system prompt", rest),
    ...head.tools.map(makeToolBlock),
    head.serverTools.length > 0 &&
      makeBlock("tools", "tools of the provider", head.serverTools.join(", ")),
  ].filter(Boolean);
};

const makeToolBlock = (tool) => ({
  ...makeBlock(
    "tools",
    tool.name,
    `${tool.description}\n\n${JSON.stringify(tool.parameters, null, 2)}`,
  ),
  bytes: byteLength(JSON.stringify(tool)),
});

const makeBlock = (kind, label, text, item = null) => ({
  kind,
  label,
  text,
  item,
  bytes: byteLength(text),
  open: false,
});

/** Return the text of a result as its model reads it: with the text that hooks added. */
const withContext = (result) =>
  result.context ? `${result.text}\n\n${result.context}` : result.text;

/** Return the messages of a run as its model sees them before the item that `isEnd` accepts.
 *
 * The runs it continues come first, unless `own` is set. A summary run continues the run above it
 * as that was before its compaction.
 */
const conversationBlocks = (fold, run, isEnd, own = false) => {
  const before = own ? undefined : fold.runs.get(run.continues);
  const isEndBefore = (item) => item.kind === "compacted" && item.summary_run === run.id;
  let blocks = before
    ? conversationBlocks(fold, before, isEndBefore, before.brief.compacts).map((each) => ({
        ...each,
        past: true,
      }))
    : historyBlocks(run.brief.history ?? [], "earlier in the conversation");
  let results = [];
  let notes = [];
  let unanswered = [];
  const close = () => {
    unanswered = [...results, ...notes];
    blocks.push(...unanswered);
    [results, notes] = [[], []];
  };
  for (const item of run.items) {
    if (item.kind === "turn") close();
    if (isEnd(item)) break;
    if (item.kind === "turn") continue;
    if (item.kind === "cleared") {
      blocks = clearBlocks(blocks, item);
      results = clearBlocks(results, item);
      unanswered = clearBlocks(unanswered, item);
      continue;
    }
    if (item.kind === "compacted") {
      blocks = historyBlocks(item.messages, "kept by the compaction");
      results = [...unanswered, ...results];
      unanswered = [];
      continue;
    }
    if (!["note", "resumed", "waiting"].includes(item.kind)) unanswered = [];
    if (item.kind === "prompt") blocks.push(makeBlock("prompt", "the prompt", item.text, item));
    else if (item.kind === "note")
      notes.push(makeBlock("note", `note of the ${item.origin}`, item.text, item));
    else if (item.kind === "thinking")
      blocks.push(makeBlock("thinking", `thinking of turn ${item.turn}`, item.text, item));
    else if (item.kind === "provider")
      blocks.push(makeBlock("provider", `the provider in turn ${item.turn}`, item.text, item));
    else if (item.kind === "text")
      blocks.push(makeBlock("answer", `text of turn ${item.turn}`, item.text, item));
    else if (item.kind === "call") {
      blocks.push({
        ...makeBlock(
          "call",
          `${item.call.name} ${callTitle(item)}`,
          JSON.stringify(item.call.arguments ?? {}, null, 1),
          item,
        ),
        callId: item.call.id,
      });
      if (item.result)
        results.push({
          ...makeBlock(
            startsRun(item) ? "report" : "result",
            `${item.call.name} ${callTitle(item)}`,
            withPlaceholders(withContext(item.result), item.result.images),
            item,
          ),
          isResult: true,
          callId: item.call.id,
        });
    }
  }
  close();
  return blocks;
};

const clearBlocks = (blocks, cleared) =>
  blocks.map((each) => {
    const newArguments = each.isResult ? undefined : cleared.arguments?.[each.callId];
    const text = each.isResult
      ? cleared.texts[each.callId]
      : newArguments && JSON.stringify(newArguments, null, 1);
    return text === undefined ? each : { ...each, text, bytes: byteLength(text) };
  });

const historyBlocks = (history, label) =>
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
      const isResult = each.type === "tool_result";
      return { ...makeBlock(kind, label, text), past: true, isResult, callId: each.call_id };
    }),
  );

/** Return the sums of the ledger, the same as `mudroom show` prints. */
const computeLedger = (fold) => {
  const children = [...fold.runs.values()].filter((run) => run.depth > 0);
  const read = Math.round(fold.read.bytes / BYTES_PER_TOKEN);
  const returned = Math.round(fold.returned.bytes / BYTES_PER_TOKEN);
  const parent = fold.growth.reduce((maximum, step) => Math.max(maximum, step.input), 0);
  return {
    // A child may have several runs: 1.1.1, 1.1.1~2.
    children: new Set(children.map((run) => run.id.replace(/~\d+$/, ""))).size,
    readLines: fold.read.lines,
    readBytes: fold.read.bytes,
    read,
    returnedLines: fold.returned.lines,
    returnedBytes: fold.returned.bytes,
    returned,
    parent,
    without: parent ? Math.max(0, parent - returned) + read : 0,
    sent: [...fold.runs.values()].reduce((sum, run) => sum + run.usage.input, 0),
    cached: [...fold.runs.values()].reduce((sum, run) => sum + run.usage.cached, 0),
    misses: sumMisses(fold),
    childTokens: children.reduce((sum, run) => sum + totalTokens(run.usage), 0),
  };
};

/** Return the largest context of one prompt, as it was and without its children, in tokens. */
const computePromptLedger = (fold, root) => {
  let [read, returned] = [0, 0];
  for (const run of fold.runs.values()) {
    if (!run.id.startsWith(`${root.id}.`)) continue;
    read += run.read.bytes;
    if (run.parent === root.id) returned += run.back.bytes;
  }
  const inputs = fold.growth.filter((step) => step.run === root).map((step) => step.input);
  const parent = Math.max(0, ...inputs);
  const own = Math.max(0, parent - Math.round(returned / BYTES_PER_TOKEN));
  return { parent, without: parent ? own + Math.round(read / BYTES_PER_TOKEN) : 0 };
};

/** Return the parent's context size at each model call: as it was, and without children. */
const computeGrowth = (fold) =>
  fold.growth.map((step) => ({
    ...step,
    with: step.input,
    without:
      Math.max(0, step.input - step.returned / BYTES_PER_TOKEN) + step.read / BYTES_PER_TOKEN,
  }));
