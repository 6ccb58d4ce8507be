// The fold of a session's events. Everything on the screen is drawn from it, for recorded and live
// sessions.
"use strict";

const STOPPED = new Set(["TIMEOUT", "MAX_TURNS", "CANCELLED", "BUDGET", "LOOP"]);
const NO_USAGE = Object.freeze({ input: 0, output: 0, cached: 0, written: 0, reasoning: 0 });

const parseUsage = (usage) => ({
  input: usage?.input_tokens ?? 0,
  output: usage?.output_tokens ?? 0,
  cached: usage?.cache_read_tokens ?? 0,
  written: usage?.cache_write_tokens ?? 0,
  reasoning: usage?.reasoning_tokens ?? 0,
});
const addUsage = (a, b) => ({
  input: a.input + b.input,
  output: a.output + b.output,
  cached: a.cached + b.cached,
  written: a.written + b.written,
  reasoning: a.reasoning + b.reasoning,
});
const totalTokens = (usage) => usage.input + usage.output;

// What the next request of a run could read from the provider's cache.
const CACHE_SECONDS = { openai: 1800, "openai-responses": 1800 };
const makeCache = (earlier) => ({
  sent: earlier?.sent ?? 0,
  model: earlier?.model ?? "",
  ended: earlier?.ended ?? 0,
  seconds: earlier?.seconds ?? 300,
  shortened: earlier?.shortened ?? false,
  misses: [],
});

/** Return what a request did not read from the cache, and why; null if that is nothing. */
const findMiss = (cache, event, grace) => {
  const { message } = event;
  const { input, cached } = parseUsage(message.usage);
  const missed = Math.min(cache.sent, input) - cached;
  if (!input || missed <= 0.05 * cache.sent) return null;
  const model = message.answered_by || message.model || "";
  const isLarge = /claude-(opus|haiku)-(4[-.][5-9]|[5-9])/.test(model);
  const reasons = [
    ["other model", model !== cache.model],
    ["too short", cache.sent < (isLarge ? 4096 : 1024)],
    ["expired", event.at - (event.seconds ?? 0) - cache.ended > cache.seconds],
    ["shortened", cache.shortened],
    ["no tools", grace && (message.wire ?? "").startsWith("anthropic")],
    ["not kept", true],
  ];
  return { tokens: missed, reason: reasons.find(([, holds]) => holds)[0], model };
};

/** Keep what an answer says of the cache; return what its request missed, null for nothing. */
const addToCache = (fold, cache, event, grace) => {
  const { message } = event;
  const { input, cached, written } = parseUsage(message.usage);
  if (!input) return null;
  const model = message.answered_by || message.model || "";
  if (cached || written) fold.cachingModels.add(model);
  const miss = findMiss(cache, event, grace);
  if (miss) cache.misses.push(miss);
  const wire = (message.wire ?? "").split(":")[0];
  const isHour = message.usage?.cache_hour_tokens || cache.seconds === 3600;
  const seconds = isHour ? 3600 : (CACHE_SECONDS[wire] ?? 300);
  Object.assign(cache, { sent: input, model, ended: event.at, seconds, shortened: false });
  return miss;
};

/** Return the tokens that the runs' requests missed, by reason. */
const sumMisses = (fold) => {
  const sums = {};
  for (const run of fold.runs.values())
    for (const { tokens, reason, model } of run.cache.misses) {
      const isSilent = reason === "not kept" && !fold.cachingModels.has(model);
      const name = isSilent ? "not reported" : reason;
      sums[name] = (sums[name] ?? 0) + tokens;
    }
  return sums;
};

class Fold {
  constructor() {
    this.runs = new Map();
    this.cachingModels = new Set(); // models whose answers reported a use of a cache
    this.roots = [];
    this.last = 0; // position of the last event
    this.events = 0;
    this.session = this.cwd = this.program = "";
    this.closed = false;
    this.ended = 0; // time of the last event, seconds since 1970
    this.pauses = []; // [from, to]: times when no process had the session open
    this.tools = new Map(); // tool -> number of its calls
    this.errors = this.refused = this.retries = 0;
    this.read = { lines: 0, bytes: 0 };
    this.returned = { lines: 0, bytes: 0 };
    // One entry per model call of a root run: size of its prompt, and what children had read and
    // returned before it.
    this.growth = [];
    this.messages = []; // between runs: {at, from, to, text, kind, approve, parent, item}
    this.messagesById = new Map();
    this.parts = new Map(); // id -> system prompt or tool
    this.heads = new Map(); // id -> ids of the system prompt and the tools of a request
  }

  /** Add the system prompt and the tools of an event; return their id. */
  addHead(head) {
    for (const [id, part] of Object.entries(head?.parts ?? {})) this.parts.set(id, part);
    if (head?.system) this.heads.set(head.id, head);
    return head?.id ?? "";
  }

  /** Apply an event; an event that was applied before is ignored. */
  apply(number, event) {
    if (number <= this.last) return;
    this.last = number;
    const before = this.ended;
    this.events++;
    this.ended = Math.max(this.ended, event.at);
    if (event.type === "session_opened") this.#openSession(event, before);
    else if (event.type === "session_closed") this.closed = true;
    else if (event.type === "conversation_rewound") this.#markAbandonedRuns(this.runs.get(event.latest_run));
    else if (event.type === "run_started") this.#startRun(event);
    else {
      const run = this.runs.get(event.run);
      const step = HANDLERS[event.type];
      if (run) {
        run.lastAt = event.at;
        run.version++;
        if (step) step(this, run, event);
      } else if (event.type === "team_message_sent") step(this, null, event); // between two prompts
    }
  }

  #openSession(event, before) {
    if (this.session) {
      this.pauses.push([before, event.at]);
      for (const run of this.runs.values())
        if (!run.report) for (const span of run.spans) span.to ||= before;
    }
    Object.assign(this, {
      session: event.session,
      cwd: event.cwd,
      program: event.version,
      board: event.board || "",
      closed: false,
    });
  }

  #startRun(event) {
    const brief = event.brief;
    if (this.runs.has(brief.run_id)) return;
    const run = createRun(brief, event.at);
    run.head = this.addHead(event.head);
    const before = this.runs.get(run.continues);
    run.cache = makeCache(before?.cache);
    const isSameChild = before && (run.name ? before.name === run.name : before.parent === run.parent);
    run.lane = isSameChild && run.depth ? before.lane : [];
    run.number = run.name && run.lane.length ? before.number + 1 : 1;
    run.lane.push(run);
    this.runs.set(run.id, run);
    const parent = this.runs.get(run.parent);
    (parent ? parent.children : this.roots).push(run);
    const call = parent?.calls.get(brief.call_id);
    if (call) markChanged(Object.assign(call, { child: run }));
    run.call = call ?? null;
    const item = addItem(run, { kind: "prompt", turn: 0, at: event.at, text: brief.prompt });
    for (const id of brief.message_ids ?? []) {
      const message = this.messagesById.get(id);
      if (message) message.item = item;
    }
    if (!parent && !run.depth) this.#markAbandonedRuns(run);
  }

  /** Mark the root runs that no later run continues, because the user rewound the conversation. */
  #markAbandonedRuns(last) {
    const kept = new Set();
    for (let run = last; run && !kept.has(run); run = this.runs.get(run.continues)) kept.add(run);
    for (const run of this.roots) {
      const abandoned = !run.depth && !kept.has(run);
      if (abandoned !== run.abandoned) Object.assign(run, { abandoned, version: run.version + 1 });
    }
  }
}

const createRun = (brief, at) => ({
  id: brief.run_id,
  parent: brief.parent ?? "",
  agent: brief.agent.name,
  name: brief.name ?? "",
  lane: [], // the runs of a child, which continue each other
  description: brief.description ?? "",
  prompt: brief.prompt,
  model: brief.model,
  depth: brief.depth ?? 0,
  continues: brief.continues ?? "",
  brief,
  started: at,
  finished: 0,
  lastAt: at,
  state: "running",
  turn: 0,
  turns: 0,
  tools: 0,
  failed: 0,
  failedTurns: 0,
  refused: 0,
  retries: 0,
  usage: NO_USAGE,
  cache: makeCache(null),
  below: NO_USAGE,
  usd: null, // cost of the run and its descendants, once it has finished
  read: { lines: 0, bytes: 0 },
  back: { lines: 0, bytes: 0 },
  report: null,
  children: [],
  items: [],
  calls: new Map(),
  open: new Set(),
  spans: [],
  marks: [],
  step: null, // item of the current turn
  abandoned: false, // true for a root run that no later run continues
  version: 0,
});

const addItem = (run, item) => {
  run.items.push(Object.assign(item, { run, version: 0 }));
  return item;
};
const markChanged = (item) => {
  item.version++;
  return item;
};
// Each text joined with its continuations, such as the parts of a sentence with citations.
const joinTexts = (content) =>
  content.reduce((blocks, block) => {
    const last = blocks.at(-1);
    if (block.type === "text" && block.is_continuation && last?.type === "text")
      blocks[blocks.length - 1] = { ...last, text: last.text + block.text };
    else blocks.push(block);
    return blocks;
  }, []);
const addText = (sums, text) => {
  sums.lines += lineCount(text);
  sums.bytes += byteLength(text);
};

const addNote = (fold, run, event) => {
  const item = addItem(run, {
    kind: "note",
    turn: event.turn ?? run.turn,
    at: event.at,
    text: event.text,
    origin: event.origin ?? "engine",
  });
  const message = fold.messagesById.get(event.message_id);
  if (message) message.item = item;
  const sender = event.type === "message_delivered" && fold.runs.get(event.origin);
  if (sender && sender.depth && !run.depth) {
    addText(sender.back, event.text);
    addText(fold.returned, event.text);
  }
};

/** Keep a message to a run; `to` is the first run of a named child. */
const addMessage = (fold, event, to) => {
  const { id, sender, text, kind = "message", approve = null } = event.message;
  if (fold.messagesById.has(id)) return; // the record of a working child has it, too
  const place = { at: event.at, parent: event.run || event.after };
  const message = { ...place, from: sender, to, text, kind, approve, item: null };
  fold.messages.push(message);
  fold.messagesById.set(id, message);
};

/** Add a permission, or an answer to the question of a server, to the call it is about. */
const addDecision = (_, run, event) => {
  const item = run.calls.get(event.call_id);
  if (item) (markChanged(item).decisions ??= []).push(event);
};

const HANDLERS = {
  permission_decided: addDecision,
  input_answered: addDecision,

  run_resumed: (fold, run, event) => {
    run.head = fold.addHead(event.head) || run.head;
    addItem(run, { kind: "resumed", turn: run.turn, at: event.at });
  },

  note_injected: addNote,
  message_delivered: addNote,
  message_sent: (fold, run, event) => addMessage(fold, event, run.id),
  team_message_sent: (fold, _, event) => addMessage(fold, event, event.child),

  run_waiting: (_, run, event) => {
    run.state = "waiting";
    addItem(run, {
      kind: "waiting",
      turn: run.turn,
      at: event.at,
      runs: event.runs ?? [],
      interrupted: event.is_interrupted ?? false,
    });
  },

  work_merged: (fold, run, event) => {
    addItem(run, { kind: "merged", turn: run.turn, at: event.at, child: event.child });
    const child = fold.runs.get(event.child);
    if (!child) return;
    child.merge = event;
    child.version++;
    if (child.call) markChanged(child.call);
  },

  check_started: (_, run, event) => {
    const facts = { command: event.command, children: event.children ?? [], text: "" };
    const item = addItem(run, { kind: "check", turn: run.turn, at: event.at, ...facts, result: null });
    item.span = { kind: "check", from: event.at, to: 0, turn: run.turn, item };
    run.spans.push(item.span);
    run.check = item;
  },

  check_finished: (_, run, event) => {
    const item = run.check;
    if (!item || item.command !== event.command) return;
    const { exit_code = 0, timed_out = false, seconds = 0, output = "" } = event;
    const result = { error: exit_code !== 0 || timed_out, exit_code, timed_out, seconds };
    markChanged(Object.assign(item, { result, text: output }));
    item.span.to = event.at;
    run.check = null;
  },

  results_cleared: (_, run, event) => {
    run.cache.shortened = true;
    addItem(run, { tokens: 0, ...event, kind: "cleared", turn: run.turn });
  },
  compacted: (_, run, event) => {
    run.cache.shortened = true;
    addItem(run, { before: 0, after: 0, parts: {}, ...event, kind: "compacted", turn: run.turn });
  },

  turn_started: (fold, run, event) => {
    run.turn = event.turn ?? 0;
    run.turns++;
    run.state = "running";
    run.step = addItem(run, {
      kind: "turn",
      turn: run.turn,
      at: event.at,
      grace: event.grace ?? "",
      retries: [],
      usage: null,
      error: "",
      head: run.head,
    });
    run.step.span = { kind: "model", from: event.at, to: 0, turn: run.turn, failed: false };
    run.spans.push(run.step.span);
    if (!run.depth)
      run.step.growth = {
        run,
        turn: run.turn,
        read: fold.read.bytes,
        returned: fold.returned.bytes,
        input: 0,
      };
  },

  model_call_retried: (fold, run, event) => {
    fold.retries++;
    run.retries++;
    run.marks.push({
      at: event.at,
      turn: run.turn,
      text: `retry ${event.attempt}: ${event.status ? `HTTP ${event.status}` : "connection lost"}`,
    });
    if (run.step) markChanged(run.step).retries.push(event);
  },

  turn_failed: (fold, run, event) => {
    fold.errors++;
    run.failedTurns++;
    run.failed++;
    if (run.step) {
      markChanged(run.step).error = event.error;
      run.step.partial = event.text ?? "";
      Object.assign(run.step.span, { to: event.at, failed: true });
    }
  },

  turn_finished: (fold, run, event) => {
    const message = event.message;
    const usage = parseUsage(message.usage);
    const step =
      run.step ??
      addItem(run, {
        kind: "turn",
        turn: event.turn ?? 0,
        at: event.at,
        grace: "",
        retries: [],
        error: "",
        head: run.head,
      });
    markChanged(
      Object.assign(step, {
        usage,
        miss: addToCache(fold, run.cache, event, step.grace),
        seconds: event.seconds ?? 0,
        stop: message.stop_reason ?? "end",
        model: message.model ?? "",
      }),
    );
    if (step.span) step.span.to = event.at;
    run.usage = addUsage(run.usage, usage);
    for (let above = fold.runs.get(run.parent); above; above = fold.runs.get(above.parent)) {
      above.below = addUsage(above.below, usage);
      above.version++;
    }
    if (step.growth) fold.growth.push(Object.assign(step.growth, { input: usage.input }));
    for (const block of joinTexts(message.content)) {
      const kind = block.type === "tool_call" ? "call" : block.type;
      const item = { kind, turn: step.turn, at: event.at };
      if (block.type !== "tool_call")
        addItem(run, Object.assign(item, { text: block.text, redacted: Boolean(block.redacted) }));
      else
        run.calls.set(
          block.id,
          addItem(run, {
            ...item,
            id: block.id,
            tool: canonicalToolName(block.name),
            call: block,
            result: null,
            started: 0,
            seconds: 0,
            refused: false,
            child: null,
            changed: [],
          }),
        );
    }
  },

  tool_call_started: (_, run, event) => {
    const known = run.calls.get(event.call.id);
    const facts = { call: event.call, title: event.title ?? "", view: event.view ?? "" };
    const item =
      known ??
      addItem(run, {
        kind: "call",
        turn: event.turn ?? 0,
        at: event.at,
        id: event.call.id,
        tool: canonicalToolName(event.call.name),
        call: event.call,
        result: null,
        seconds: 0,
        refused: false,
        child: null,
        changed: [],
      });
    run.calls.set(item.id, markChanged(Object.assign(item, facts, { started: event.at })));
    run.open.add(item);
    item.span = { kind: "tool", from: event.at, to: 0, turn: item.turn, item };
    run.spans.push(item.span);
    run.state = workingState(run);
  },

  file_write_intended: (_, run, event) => {
    const item = run.calls.get(event.call_id);
    if (item) markChanged(item).changed.push(event.path);
  },

  tool_call_finished: (fold, run, event) => {
    const item = run.calls.get(event.call_id);
    if (!item) return;
    const again = item.result !== null;
    markChanged(
      Object.assign(item, {
        result: event.result,
        seconds: event.seconds ?? 0,
        refused: Boolean(event.refused),
        tool: canonicalToolName(event.name),
      }),
    );
    if (item.span) item.span.to = event.at;
    run.open.delete(item);
    run.state = workingState(run);
    if (again) return;
    countResult(fold, run, item);
  },

  run_finished: (fold, run, event) => {
    const report = event.report;
    const reason = report.reason;
    Object.assign(run, { report, finished: event.at, usd: report.usd ?? null });
    run.state = reason === "GOAL" ? "done" : STOPPED.has(reason) ? "stopped" : "failed";
    for (const item of run.open) markChanged(item);
    run.open.clear();
    if (run.state === "failed") fold.errors += 1 - run.failedTurns; // its failed turns are the cause
    if (run.depth && !run.parent) {
      addText(run.back, report.text);
      addText(fold.returned, report.text);
    }
    if (run.call) markChanged(run.call);
    addItem(run, { kind: "report", turn: run.turn, at: event.at, report });
  },
};

/** Return true if a call starts a child run. Older records say so only in the result. */
const startsRun = (item) => item.view === "run" || item.result?.detail?.run !== undefined;

/** Return true if a call only started a child: its report is a message, later. */
const isStart = (item) => Boolean(item.result?.detail?.background);

const workingState = (run) =>
  run.open.size && [...run.open].every(startsRun) ? "waiting" : "running";

/** Add a finished call to the sums. */
const countResult = (fold, run, item) => {
  const { result, refused, tool } = item;
  fold.tools.set(tool, (fold.tools.get(tool) ?? 0) + 1);
  run.tools += refused ? 0 : 1;
  run.failed += result.error ? 1 : 0;
  run.refused += refused ? 1 : 0;
  fold.errors += result.error && !refused && !hasFailedChild(item) ? 1 : 0;
  fold.refused += refused ? 1 : 0;
  if (run.depth && !startsRun(item)) {
    addText(run.read, result.text);
    addText(fold.read, result.text);
  } else if (!run.depth && startsRun(item) && !refused && !isStart(item))
    addText(fold.returned, result.text);
  if (item.child && !isStart(item)) addText(item.child.back, result.text);
};

/** Return the name of a run: its own, or that of its agent. */
const runName = (run) => run.name || run.agent;

/** Return the name of a run with the number of a later run of its name: "alice, run 2". */
const runLabel = (run) => (run.number > 1 ? `${runName(run)}, run ${run.number}` : runName(run));

/** Return how a check ended: "succeeded, 1.2 s", "exit code 1, 0.3 s". */
const describeCheck = ({ result }) => {
  if (!result) return "not ended";
  const ending = result.timed_out ? "timed out" : `exit code ${result.exit_code}`;
  return `${result.error ? ending : "succeeded"}, ${formatSeconds(result.seconds)}`;
};

/** Return the first paragraph of a prompt; instructions, data and attached files follow it. */
const promptTopic = (prompt) => prompt.trim().split("\n\n", 1)[0];

/** Return the title of a run. */
const runTitle = (run) =>
  run.brief.compacts
    ? "summary of the conversation"
    : (run.depth && run.description) || promptTopic(run.prompt);

/** Return the title of a run; where siblings have the same, with the part of the prompt that differs. */
const distinctTitle = (fold, run) => {
  const title = runTitle(run);
  const siblings = fold.runs.get(run.parent)?.children ?? [];
  const { prompt } = run.lane[0]; // a later run of the child begins with a note or with messages
  const isOther = (each) => each.lane !== run.lane && each.lane[0] === each;
  const same = siblings.filter((each) => isOther(each) && runTitle(each) === title);
  if (!same.length) return title;
  let at = Math.min(...same.slice(0, 20).map((each) => commonLength(prompt, each.prompt)));
  while (at > 0 && !/[\s/]/.test(prompt[at - 1])) at--;
  const rest = prompt.slice(at).trim();
  return rest ? `${title}: ${rest}` : title;
};

const commonLength = (a, b) => {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  return at;
};

/** Return true if the conversation does not continue after a run's root run. */
const isAbandoned = (fold, run) => fold.runs.get(run.id.split(".")[0])?.abandoned ?? false;

/** Return the state of a run; a run of a session that is not written any more is unfinished. */
const displayState = (run, live) => (!run.report && !live ? "unfinished" : run.state);

const ancestors = (fold, run) => {
  const above = [];
  for (let at = fold.runs.get(run.parent); at; at = fold.runs.get(at.parent)) above.unshift(at);
  return above;
};
