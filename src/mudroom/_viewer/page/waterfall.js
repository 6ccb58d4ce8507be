// The tree of runs with a timeline lane per run: model calls in the upper half of a lane, tool
// calls in the lower half.
"use strict";

const ROW_HEIGHT = 42;

class Waterfall {
  constructor() {
    this.collapsed = new Set(); // ids of runs whose children are hidden
    this.shown = [];
    this.stamp = 0; // increases when all lanes must be redrawn
    this.view = null; // [from, to] in drawn seconds, null for all
    this.rows = $("rows");
    this.list = new VirtualList(this.rows, {
      render: (row) => this.#drawRow(row),
      estimateHeight: () => ROW_HEIGHT,
      overscan: 200,
      fixed: true,
    });
    this.rowsById = new Map(); // run id -> row; the list compares its version
    this.rows.addEventListener("click", (event) => this.#onClick(event));
    this.rows.addEventListener("mousemove", (event) => this.#onHover(event));
    this.rows.addEventListener("mouseleave", () => app.showTooltip(null));
    this.rows.addEventListener("dblclick", (event) => this.#zoomTo(event));
    this.rows.addEventListener("wheel", (event) => this.#onWheel(event), { passive: false });
    new ResizeObserver(() => this.redraw()).observe(this.rows);
  }

  /** Draw all runs of a fold. */
  draw() {
    const { fold } = app;
    const length = this.scale?.length;
    this.scale = new TimeScale(fold, app.now());
    this.width ||= $("axis").querySelector("canvas").clientWidth; // the same for all lanes
    if (this.scale.length !== length) this.stamp++;
    const wanted = isFiltering(app.filter) ? this.#matchingRuns(fold) : null;
    this.shown = [];
    const walk = (runs, depth) => {
      for (const run of runs) {
        if (run.lane[0] !== run) continue; // it is in the lane of the first run of its name
        if (wanted && !wanted.has(run.id)) continue;
        const row = this.rowsById.get(run.id) ?? { run };
        this.rowsById.set(run.id, row);
        row.depth = depth;
        row.version = this.#laneVersion(run);
        this.rowIndexes.set(run, this.shown.length);
        this.shown.push(row);
        if (!this.collapsed.has(run.id)) walk(laneChildren(run), depth + 1);
      }
    };
    this.rowIndexes = new Map();
    walk(fold.roots, 0);
    this.list.set(this.shown);
    const selected = fold.runs.get(app.selection.run);
    this.rows.setAttribute("aria-activedescendant", `row-${selected?.lane[0].id ?? ""}`);
    const isEmpty = !fold.runs.size; // a scale of no time would mean nothing
    $("axis").classList.toggle("blank", isEmpty);
    const count = plural(fold.runs.size, "run");
    if (isEmpty) $("count").textContent = "";
    else $("count").textContent = wanted ? `${formatCount(this.shown.length)} of ${count}` : count;
    this.#drawAxis();
  }

  /** Redraw all, after a change of width, theme, zoom or time. */
  redraw() {
    this.stamp++;
    this.width = 0;
    this.colours = null;
    if (app.fold) this.draw();
  }

  /** Scroll to a run and expand its ancestors. */
  show(run) {
    const [first] = run.lane;
    const above = [...ancestors(app.fold, run), ...ancestors(app.fold, first)];
    const folded = above.filter((each) => this.collapsed.delete(each.lane[0].id));
    if (folded.length) this.redraw();
    this.list.show(
      this.shown.findIndex((row) => row.run === first),
      { align: "near" },
    );
  }

  /** Return the run `step` rows further down. */
  neighbour(step) {
    const first = app.fold.runs.get(app.selection.run)?.lane[0];
    const at = this.shown.findIndex((row) => row.run === first);
    return this.shown[Math.max(0, Math.min(this.shown.length - 1, at + step))]?.run;
  }

  toggle({ lane: [first] }, fold = !this.collapsed.has(first.id)) {
    if (!laneChildren(first).length) return false;
    const was = this.collapsed.has(first.id);
    if (fold) this.collapsed.add(first.id);
    else this.collapsed.delete(first.id);
    if (was !== fold) this.redraw();
    return was !== fold;
  }

  zoom(factor, about = 0.5) {
    const [from, to] = this.view ?? [0, this.scale.length];
    const length = Math.min(this.scale.length, Math.max((to - from) * factor, 0.02));
    const centre = from + (to - from) * about;
    this.pan(centre - length * about, length);
  }

  pan(from, length) {
    const start = Math.max(0, Math.min(from, this.scale.length - length));
    this.view = length >= this.scale.length * 0.999 ? null : [start, start + length];
    this.redraw();
  }

  #matchingRuns(fold) {
    const wanted = new Set();
    for (const run of fold.runs.values()) {
      if (!run.items.some((item) => matchesFilter(item, app.filter))) continue;
      for (const each of [run, ...ancestors(fold, run)]) wanted.add(each.lane[0].id);
      for (const each of ancestors(fold, run.lane[0])) wanted.add(each.lane[0].id);
    }
    return wanted;
  }

  /** Return the version of a row: it changes when the row must be drawn again. */
  #laneVersion({ lane }) {
    const selected = lane.some((run) => run.id === app.selection.run);
    const versions = lane.reduce((sum, run) => sum + run.version, 0);
    const place = selected ? ` ${app.selection.run} ${app.selection.turn}` : "";
    return `${versions} ${this.stamp} ${app.fold.messages.length}${place}`;
  }

  #drawRow(row) {
    const { run: first, depth } = row;
    const { lane } = first;
    const run =
      lane.find((each) => each.id === app.selection.run) ??
      lane.findLast((each) => !isAbandoned(app.fold, each)) ??
      lane.at(-1);
    const chosen = run.id === app.selection.run;
    const hasChildren = laneChildren(first).length > 0;
    const abandoned = isAbandoned(app.fold, run);
    const figures = laneFigures(lane);
    const sum = (value) => lane.reduce((all, each) => all + value(each), 0);
    const errors = sum((each) => each.failed - each.refused);
    const refused = sum((each) => each.refused);
    const retries = sum((each) => each.retries);
    const canvas = h("canvas", { class: "lane", "aria-hidden": "true" });
    const node = h(
      "div",
      {
        class: `row${chosen ? " chosen" : ""}${abandoned ? " left" : ""}`,
        id: `row-${first.id}`,
        role: "treeitem",
        "aria-level": depth + 1,
        "aria-selected": String(chosen),
        "aria-expanded": hasChildren ? String(!this.collapsed.has(first.id)) : null,
        "data-run": run.id,
      },
      h(
        "div",
        { class: "cell", style: { "--depth": String(depth) } },
        hasChildren
          ? h(
              "button",
              {
                class: "fold",
                tabindex: "-1",
                "aria-label": this.collapsed.has(first.id) ? "Open" : "Close",
              },
              this.collapsed.has(first.id) ? "▸" : "▾",
            )
          : h("i", { class: "leaf" }),
        drawStateDot(run),
        h(
          "div",
          { class: "words" },
          h(
            "div",
            { class: "first" },
            h("b", { style: { "--hue": String(agentHue(run.agent)) } }, runName(run)),
            " ",
            oneLine(distinctTitle(app.fold, chosen ? run : first), 120),
          ),
          h(
            "div",
            { class: "second" },
            h("span", { class: `state ${displayState(run, app.live)}` }, runOutcome(run)),
            // The state of a run that is done is only a dot.
            run.state === "done" &&
              describeMerge(run) &&
              h("span", { class: run.merge.state === "merged" ? "merged" : "failed" }, describeMerge(run)),
            h("span", null, figures.join(" · ")),
            errors > 0 && h("span", { class: "failed" }, plural(errors, "error")),
            refused > 0 && h("span", { class: "refused" }, `${refused} refused`),
            retries > 0 &&
              h("span", { class: "retried" }, retries === 1 ? "1 retry" : `${retries} retries`),
            run.abandoned && h("span", { class: "behind" }, "abandoned"),
          ),
        ),
      ),
      canvas,
    );
    this.#drawLane(canvas, first);
    return node;
  }

  /** Draw the runs of a lane, and the messages that start, end or pass there. */
  #drawLane(canvas, first) {
    const context = this.#prepareCanvas(canvas, ROW_HEIGHT);
    if (!context) return;
    for (const run of first.lane) this.#drawSpans(context, run);
    drawArrows(context, {
      messages: app.fold.messages,
      row: this.rowIndexes.get(first),
      rowOf: (id) => this.#rowOf(id),
      x: (moment) => this.#x(moment, this.width),
      colour: this.#palette().arrow,
    });
  }

  /** Return the index of the row that shows a run: its own, or that of a run above it. */
  #rowOf(id) {
    for (let run = app.fold.runs.get(id); run; run = app.fold.runs.get(run.lane[0].parent)) {
      const index = this.rowIndexes.get(run.lane[0]);
      if (index !== undefined) return index;
    }
    return undefined;
  }

  #drawSpans(context, run) {
    const { width } = this;
    const colour = this.#palette();
    const end = run.finished || (app.live ? app.now() : run.lastAt);
    const [left, right] = [this.#x(run.started, width), this.#x(end, width)];
    context.fillStyle = run.report || app.live ? colour.life : colour.lost;
    context.beginPath();
    context.roundRect(left - 2, 7, Math.max(right - left + 4, 5), ROW_HEIGHT - 14, 4);
    context.fill();
    for (const span of run.spans) {
      const from = this.#x(span.from, width);
      const wide = Math.max(this.#x(span.to || end, width) - from, 1.5);
      if (from > width || from + wide < 0) continue;
      const model = span.kind === "model";
      const waits = span.kind === "tool" && startsRun(span.item);
      const chosen = run.id === app.selection.run && span.turn === app.selection.turn;
      context.fillStyle = model
        ? span.failed
          ? colour.failed
          : colour.model
        : span.item.refused
          ? colour.refused
          : span.item.result?.error
            ? colour.failed
            : waits
              ? colour.wait
              : colour.tool;
      context.globalAlpha =
        !app.selection.turn || chosen || run.id !== app.selection.run ? 1 : 0.45;
      if (model) context.fillRect(from, 11, wide, 8);
      else context.fillRect(from, waits ? 26 : 23, wide, waits ? 2 : 8);
    }
    context.globalAlpha = 1;
    context.fillStyle = colour.retried;
    for (const each of run.marks) {
      const x = this.#x(each.at, width);
      context.beginPath();
      context.moveTo(x - 3.5, 5);
      context.lineTo(x + 3.5, 5);
      context.lineTo(x, 11);
      context.fill();
    }
  }

  #drawAxis() {
    const canvas = $("axis").querySelector("canvas");
    const width = this.width;
    const context = this.#prepareCanvas(canvas, 26);
    if (!context) return;
    const [from, to] = this.view ?? [0, this.scale.length];
    const step = chooseTickStep(to - from, width);
    const colour = this.#palette();
    context.font = `11px ${colour.font}`;
    let free = 0;
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      const x = ((tick - from) / (to - from)) * (width - 16) + 8;
      context.fillStyle = colour.faint;
      context.fillRect(Math.round(x), 19, 1, 7);
      context.fillStyle = colour.dim;
      const word = tick === 0 ? "0" : step % 86400 === 0 ? `${tick / 86400}d` : formatSeconds(tick);
      const long = context.measureText(word).width;
      const at = Math.min(x + 4, width - long - 2);
      if (at < free) continue;
      context.fillText(word, at, 17);
      free = at + long + 6;
    }
  }

  #prepareCanvas(canvas, height) {
    const { width } = this;
    if (!width) return null;
    const dense = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    const context = canvas.getContext("2d");
    context.scale(dense, dense);
    return context;
  }

  #x(moment, width) {
    const [from, to] = this.view ?? [0, this.scale.length];
    return ((this.scale.positionOf(moment) - from) / (to - from)) * (width - 16) + 8;
  }

  #palette() {
    if (this.colours) return this.colours;
    const probe = document.body.appendChild(h("i"));
    const read = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    const names = [
      "model",
      "tool",
      "wait",
      "failed",
      "refused",
      "retried",
      "life",
      "lost",
      "arrow",
      "faint",
      "dim",
    ];
    this.colours = {
      ...Object.fromEntries(names.map((name) => [name, read(name)])),
      font: getComputedStyle(probe).fontFamily,
    };
    probe.remove();
    return this.colours;
  }

  /** Return the run and the span of its lane under the pointer. */
  #spanAt(event) {
    const canvas = event.target.closest?.("canvas.lane");
    let run = app.fold?.runs.get(event.target.closest?.(".row")?.dataset.run);
    if (!canvas || !run) return { run, span: null };
    const area = canvas.getBoundingClientRect();
    const x = event.clientX - area.left;
    const below = event.clientY - area.top > ROW_HEIGHT / 2;
    let best = null;
    let nearest = 4;
    for (const each of run.lane)
      for (const span of each.spans) {
        const end = span.to || each.finished || (app.live ? app.now() : each.lastAt);
        const [from, to] = [this.#x(span.from, area.width), this.#x(end, area.width)];
        const away =
          Math.max(from - x, x - to, 0) +
          ((span.kind !== "model") === below ? 0 : 2) +
          (span.kind === "tool" && startsRun(span.item) ? 1 : 0);
        if (away < nearest) [run, best, nearest] = [each, span, away];
      }
    return { run, span: best, canvas, message: this.#messageAt(run, x) };
  }

  /** Return the message whose arrow starts or ends in the lane of a run, near `x`. */
  #messageAt(run, x) {
    const row = this.#rowOf(run.id);
    return app.fold.messages.find(
      ({ at, from, to }) =>
        Math.abs(this.#x(at, this.width) - x) < 3 &&
        this.#rowOf(from) !== this.#rowOf(to) &&
        [this.#rowOf(from), this.#rowOf(to)].includes(row),
    );
  }

  #onClick(event) {
    const { run, span, message } = this.#spanAt(event);
    if (!run) return;
    if (message?.item)
      return app.navigate(place(message.item.run, message.item), { item: message.item });
    if (event.target.closest(".fold")) return void this.toggle(run);
    const turn = span ? span.turn : 0;
    app.navigate({ run: run.id, turn, call: span?.item?.id ?? "", tab: runTab() });
  }

  #onHover(event) {
    const { span, message } = this.#spanAt(event);
    if (message) return app.showTooltip(event, describeMessage(app.fold, message));
    if (!span) return app.showTooltip(null);
    const length = formatSeconds((span.to || app.now()) - span.from);
    const what =
      span.kind === "model"
        ? `model, turn ${span.turn}${span.failed ? ": failed" : ""}`
        : span.kind === "check"
          ? `check ${span.item.command}`
          : `${span.item.call.name} ${callTitle(span.item)}`;
    const how = span.item?.refused ? " · refused" : span.item?.result?.error ? " · error" : "";
    app.showTooltip(event, `${oneLine(what, 90)} · ${length}${how}`);
  }

  #zoomTo(event) {
    const { run, canvas } = this.#spanAt(event);
    if (!run || !canvas) return;
    const [from, to] = [
      this.scale.positionOf(run.started),
      this.scale.positionOf(run.finished || run.lastAt),
    ];
    const margin = Math.max((to - from) * 0.04, 0.01);
    this.view ? this.pan(0, this.scale.length) : this.pan(from - margin, to - from + 2 * margin);
  }

  #onWheel(event) {
    const canvas = event.target.closest?.("canvas.lane");
    const sideways = event.shiftKey
      ? event.deltaY
      : Math.abs(event.deltaX) > Math.abs(event.deltaY)
        ? event.deltaX
        : 0;
    if (!canvas || !(event.ctrlKey || event.metaKey || (sideways && this.view))) return;
    event.preventDefault();
    const area = canvas.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey)
      return this.zoom(Math.exp(event.deltaY * 0.004), (event.clientX - area.left) / area.width);
    const [from, to] = this.view;
    this.pan(from + (sideways / area.width) * (to - from), to - from);
  }
}
