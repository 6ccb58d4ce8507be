// Events in, the session as it stands out. Everything on the screen is drawn from this fold, recorded and live alike.
"use strict";

const STOPPED = new Set(["TIMEOUT", "MAX_TURNS", "CANCELLED", "BUDGET", "LOOP"]);
const NO_TOKENS = Object.freeze({ input: 0, output: 0, cached: 0, written: 0, reasoning: 0 });

const usageOf = (given) => ({
  input: given?.input_tokens ?? 0,
  output: given?.output_tokens ?? 0,
  cached: given?.cache_read_tokens ?? 0,
  written: given?.cache_write_tokens ?? 0,
  reasoning: given?.reasoning_tokens ?? 0,
});
const added = (a, b) => ({
  input: a.input + b.input,
  output: a.output + b.output,
  cached: a.cached + b.cached,
  written: a.written + b.written,
  reasoning: a.reasoning + b.reasoning,
});
const total = (usage) => usage.input + usage.output;

class Fold {
  constructor() {
    this.runs = new Map();
    this.roots = [];
    this.last = 0; // number of the last event taken in
    this.events = 0;
    this.session = this.cwd = this.program = "";
    this.closed = false;
    this.ended = 0; // seconds since 1970 of the last event
    this.pauses = []; // [from, to]: nobody had the session open, also in the middle of a run
    this.tools = new Map(); // tool -> how often it ran
    this.errors = this.refused = this.retries = 0;
    this.structure = 0; // counts up when a run is added
    this.taken = { lines: 0, bytes: 0 };
    this.returned = { lines: 0, bytes: 0 };
    this.growth = []; // one entry a model call of a root run: what its prompt held, and what children had taken and returned by then
  }

  /** Take in the next event; one that was taken in before is passed over. */
  apply(number, event) {
    if (number <= this.last) return;
    this.last = number;
    const before = this.ended;
    this.events++;
    this.ended = Math.max(this.ended, event.at);
    if (event.type === "session_opened") this.#open(event, before);
    else if (event.type === "session_closed") this.closed = true;
    else if (event.type === "run_started") this.#begin(event);
    else {
      const run = this.runs.get(event.run);
      const step = STEPS[event.type];
      if (run) {
        run.lastAt = event.at;
        run.version++;
        if (step) step(this, run, event);
      }
    }
  }

  #open(event, before) {
    if (this.session) {
      this.pauses.push([before, event.at]);
      for (const run of this.runs.values()) if (!run.report) for (const span of run.spans) span.to ||= before;
    }
    Object.assign(this, { session: event.session, cwd: event.cwd, program: event.version, closed: false });
  }

  #begin(event) {
    const brief = event.brief;
    if (this.runs.has(brief.run_id)) return;
    const run = newRun(brief, event.at);
    this.runs.set(run.id, run);
    this.structure++;
    const parent = this.runs.get(run.parent);
    (parent ? parent.children : this.roots).push(run);
    const call = parent?.calls.get(brief.call_id);
    if (call) touch(Object.assign(call, { child: run }));
    run.call = call ?? null;
    push(run, { kind: "prompt", turn: 0, at: event.at, text: brief.prompt });
    if (!parent && !run.depth) this.#conversation(run);
  }

  /** Whoever went back to before a prompt left what came of it behind: the conversation as it stands does not go on from there. */
  #conversation(last) {
    const kept = new Set();
    for (let run = last; run && !kept.has(run); run = this.runs.get(run.continues)) kept.add(run);
    for (const run of this.roots) {
      const left = !run.depth && !kept.has(run);
      if (left !== run.left) Object.assign(run, { left, version: run.version + 1 });
    }
  }
}

const newRun = (brief, at) => ({
  id: brief.run_id,
  parent: brief.parent ?? "",
  agent: brief.agent.name,
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
  refused: 0,
  retries: 0,
  usage: NO_TOKENS,
  below: NO_TOKENS,
  usd: null, // of the run and all below it, once it has ended
  taken: { lines: 0, bytes: 0 },
  back: { lines: 0, bytes: 0 },
  report: null,
  children: [],
  items: [],
  calls: new Map(),
  open: new Set(),
  spans: [],
  marks: [],
  step: null, // the item of the current turn
  left: false, // a root run that the conversation went back behind
  version: 0,
});

const push = (run, item) => {
  run.items.push(Object.assign(item, { run, version: 0 }));
  return item;
};
const touch = (item) => {
  item.version++;
  return item;
};
const count = (sums, text) => {
  sums.lines += lineCount(text);
  sums.bytes += size(text);
};

const STEPS = {
  resumed: (_, run, event) => push(run, { kind: "resumed", turn: run.turn, at: event.at }),

  told: (_, run, event) => push(run, { kind: "told", turn: event.turn ?? run.turn, at: event.at, text: event.text, origin: event.origin ?? "engine" }),

  turn_started: (fold, run, event) => {
    run.turn = event.turn ?? 0;
    run.turns++;
    run.state = "running";
    run.step = push(run, { kind: "turn", turn: run.turn, at: event.at, grace: event.grace ?? "", retries: [], usage: null, error: "" });
    run.step.span = { kind: "model", from: event.at, to: 0, turn: run.turn, failed: false };
    run.spans.push(run.step.span);
    if (!run.depth)
      run.step.growth = { run, turn: run.turn, taken: fold.taken.bytes, returned: fold.returned.bytes, input: 0 };
  },

  retried: (fold, run, event) => {
    fold.retries++;
    run.retries++;
    run.marks.push({ at: event.at, turn: run.turn, text: `retry ${event.attempt}: ${event.status ? `HTTP ${event.status}` : "connection lost"}` });
    if (run.step) touch(run.step).retries.push(event);
  },

  turn_failed: (fold, run, event) => {
    fold.errors++;
    run.failed++;
    if (run.step) {
      touch(run.step).error = event.error;
      Object.assign(run.step.span, { to: event.at, failed: true });
    }
  },

  turn_finished: (fold, run, event) => {
    const message = event.message;
    const usage = usageOf(message.usage);
    const step = run.step ?? push(run, { kind: "turn", turn: event.turn ?? 0, at: event.at, grace: "", retries: [], error: "" });
    touch(Object.assign(step, { usage, seconds: event.seconds ?? 0, stop: message.stop ?? "end", model: message.model ?? "" }));
    if (step.span) step.span.to = event.at;
    run.usage = added(run.usage, usage);
    for (let above = fold.runs.get(run.parent); above; above = fold.runs.get(above.parent)) {
      above.below = added(above.below, usage);
      above.version++;
    }
    if (step.growth) fold.growth.push(Object.assign(step.growth, { input: usage.input }));
    for (const block of message.content) {
      const item = { kind: block.type, turn: step.turn, at: event.at };
      if (block.type !== "call") push(run, Object.assign(item, { text: block.text, redacted: Boolean(block.redacted) }));
      else run.calls.set(block.id, push(run, { ...item, id: block.id, tool: canonical(block.name), call: block, result: null, started: 0, seconds: 0, refused: false, child: null, changed: [] }));
    }
  },

  call_started: (_, run, event) => {
    const known = run.calls.get(event.call.id);
    const item = known ?? push(run, { kind: "call", turn: event.turn ?? 0, at: event.at, id: event.call.id, tool: canonical(event.call.name), call: event.call, result: null, seconds: 0, refused: false, child: null, changed: [] });
    run.calls.set(item.id, touch(Object.assign(item, { started: event.at })));
    run.open.add(item);
    item.span = { kind: "tool", from: event.at, to: 0, turn: item.turn, item };
    run.spans.push(item.span);
    run.state = atWork(run);
  },

  changing: (_, run, event) => {
    const item = run.calls.get(event.call_id);
    if (item) touch(item).changed.push(event.path);
  },

  call_finished: (fold, run, event) => {
    const item = run.calls.get(event.call_id);
    if (!item) return;
    const again = item.result !== null;
    touch(Object.assign(item, { result: event.result, seconds: event.seconds ?? 0, refused: Boolean(event.refused), tool: canonical(event.name) }));
    if (item.span) item.span.to = event.at;
    run.open.delete(item);
    run.state = atWork(run);
    if (again) return;
    tally(fold, run, item);
  },

  run_finished: (fold, run, event) => {
    const report = event.report;
    const reason = report.reason;
    Object.assign(run, { report, finished: event.at, usd: report.usd ?? null });
    run.state = reason === "GOAL" ? "done" : STOPPED.has(reason) ? "stopped" : "failed";
    for (const item of run.open) touch(item);
    run.open.clear();
    if (reason === "ERROR" || reason === "LOST") fold.errors++;
    if (run.depth && !run.parent) {
      count(run.back, report.text);
      count(fold.returned, report.text);
    }
    if (run.call) touch(run.call);
    push(run, { kind: "report", turn: run.turn, at: event.at, report });
  },
};

const atWork = (run) => (run.open.size && [...run.open].every((item) => item.tool === "task") ? "waiting" : "running");

/** Enter a finished call into the sums: how often, how it went, and who had to read its result. */
const tally = (fold, run, item) => {
  const { result, refused, tool } = item;
  fold.tools.set(tool, (fold.tools.get(tool) ?? 0) + 1);
  run.tools += refused ? 0 : 1;
  run.failed += result.error ? 1 : 0;
  run.refused += refused ? 1 : 0;
  fold.errors += result.error && !refused ? 1 : 0;
  fold.refused += refused ? 1 : 0;
  if (run.depth && tool !== "task") {
    count(run.taken, result.text);
    count(fold.taken, result.text);
  } else if (!run.depth && tool === "task" && !refused) count(fold.returned, result.text);
  if (item.child) count(item.child.back, result.text);
};

/** What a run is about, in its list and over its transcript. */
const titleOf = (run) => (run.brief.compacts ? "the conversation, told in short" : (run.depth && run.description) || run.prompt);

/** Whether a run, or the root run it belongs to, was left behind. */
const leftBehind = (fold, run) => fold.runs.get(run.id.split(".")[0])?.left ?? false;

/** How a run stands, once it is known whether its session is still written. */
const stateOf = (run, live) => (!run.report && !live ? "unfinished" : run.state);

const ancestors = (fold, run) => {
  const above = [];
  for (let at = fold.runs.get(run.parent); at; at = fold.runs.get(at.parent)) above.unshift(at);
  return above;
};

/** What a run cost without the runs below it; null when a price is not known. */
const ownMoney = (run) => {
  if (run.usd === null) return null;
  const below = run.children.reduce((sum, child) => (sum === null || child.usd === null ? null : sum + child.usd), 0);
  return below === null ? null : Math.max(0, run.usd - below);
};
