// The tab with what a run changed in its isolated workspace, and the sides of conflicts.
"use strict";

const SIDES = {
  base: "before both",
  ours: "the parent's",
  theirs: "the child's",
  both: "both, with conflict marks",
};

const MAX_CHANGED_RUNS = 100; // runs whose changes are shown together

/** Return what became of the work of a run: "merged 2 files", "conflict in 1 file". */
const describeMerge = (run) => {
  const { work } = run.report ?? {};
  if (!work || !run.merge) return "";
  const changed = plural(work.files?.length ?? 0, "file");
  if (run.merge.state === "conflict")
    return `conflict in ${plural(run.merge.conflicts?.length ?? 0, "file")}`;
  if (run.merge.state !== "merged") return `${changed} not merged`;
  return run.merge.files?.length ? `merged ${plural(run.merge.files.length, "file")}` : "no changes";
};

/** Return true if a run of the session had an isolated workspace. */
const hasWork = (fold) => [...fold.runs.values()].some((run) => run.report?.work);

/** Return the items of the tab "Changes". What the server has not sent yet is requested. */
const workItems = (run) => {
  if (!run.report?.work) {
    const changed = runsBelow(run).filter((each) => hasChanges(each) && !isTakenUp(each));
    const shown = changed.slice(0, MAX_CHANGED_RUNS);
    const items = (run.report?.files_changed?.length && !changed.length ? [run] : shown).flatMap(
      changesOfRun,
    );
    if (changed.length > shown.length)
      items.push({ pane: "empty", words: `and ${plural(changed.length - shown.length, "more run")} with changes` });
    if (items.length) return items;
    const words = run.report
      ? "No file was changed by this run or the runs below it."
      : "The changes of a run are shown when it has ended.";
    return [{ pane: "empty", words }];
  }
  return ownWorkItems(run);
};

/** Return true if a later run of the child got the work back after a conflict: it shows the work. */
const isTakenUp = (run) =>
  run.merge?.state === "conflict" &&
  run.lane.slice(run.lane.indexOf(run) + 1).some((later) => later.report?.work);

const hasChanges = (run) => run.report?.work || run.report?.files_changed?.length;

/** Return all runs below a run, in the order of the calls that started them. */
const runsBelow = (run) =>
  [...run.children].sort(comparePlaces).flatMap((child) => [child, ...runsBelow(child)]);

/** Return what changes when the tab must be drawn again. */
const workVersion = (run) => [run, ...runsBelow(run)].reduce((sum, each) => sum + each.version, 0);

/** Return the items for the changes of one of many runs, with its name and what became of them. */
const changesOfRun = (run) => {
  const head = { pane: "changer", run, version: run.version };
  return run.report.work ? [head, ...ownWorkItems(run)] : [head];
};

/** Return the items for the changes that a run made in its isolated workspace. */
const ownWorkItems = (run) => {
  // The sides of a conflict are known when the merge is, which may come after the end of the run.
  const merge = `${run.merge?.state} ${run.merge?.tree}`;
  if (run.workOf !== merge) loadWork(run, merge);
  if (!run.workPage) return [{ pane: "empty", words: "Loading…" }];
  const page = run.workPage;
  if (page.error) return [{ pane: "empty", words: page.error }];
  const kinds = new Map(run.merge?.conflicts ?? []);
  return [
    { pane: "merge", run, page },
    ...page.conflicts.map((each) => ({
      pane: "sides",
      run,
      sides: each,
      kind: kinds.get(each.path) ?? "conflict",
      version: 0,
    })),
    ...page.files.map((each) => ({ pane: "change", run, file: each, version: 0 })),
  ];
};

/** Get the changes of a run from the server, or from this file, then draw again. */
const loadWork = async (run, merge) => {
  run.workOf = merge;
  const page = app.embedded
    ? (app.embedded.works?.[run.id] ?? { error: "This file does not contain the changes." })
    : await fetchWork(run).catch((error) => ({ error: String(error.message ?? error) }));
  if (run.workOf !== merge) return; // it was merged meanwhile
  run.workPage = page;
  run.version++;
  app.scheduleDraw();
};

const fetchWork = (run) => {
  const { base, tree } = run.report.work;
  const query = new URLSearchParams({ base, tree });
  if (run.merge?.state === "conflict") {
    if (run.merge.base) query.set("ours", run.merge.base);
    if (run.merge.tree) query.set("both", run.merge.tree);
    for (const [path] of run.merge.conflicts) query.append("conflict", path);
  }
  return fetchJson(`api/sessions/${encodeURIComponent(app.selection.session)}/work?${query}`);
};

const drawChanger = ({ run }) => {
  const { work, files_changed: shared = [] } = run.report;
  return h(
    "div",
    { class: "note changer" },
    goButton(place(run), { class: "line" }, [
      drawStateDot(run),
      h("b", { style: { "--hue": String(agentHue(run.agent)) } }, runLabel(run)),
      " ",
      oneLine(distinctTitle(app.fold, run), 120),
    ]),
    !work && h("p", null, `changed files that it shared: ${oneLine(shared.join(", "), 400)}`),
  );
};

const drawMergeHead = ({ run, page }) =>
  h(
    "div",
    { class: "note" },
    h("b", null, describeMerge(run)),
    run.merge?.text &&
      h(
        "details",
        null,
        h("summary", null, "what the parent's model read"),
        h("pre", { class: "words" }, sanitize(run.merge.text)),
      ),
    page.omitted > 0 && ` ${plural(page.omitted, "further file")} not shown.`,
  );

const drawChangedFile = (item) => {
  const { path, change, lines = [], note } = item.file;
  const count = (sign) => lines.filter(([each]) => each === sign).length;
  return h(
    "article",
    { class: "call" },
    h(
      "div",
      { class: "callhead" },
      h("b", null, oneLine(path, 200)),
      h("span", { class: "word" }, change),
      h("span", { class: "figure" }, note ? note : `+${count("+")} −${count("-")}`),
    ),
    h("div", { class: "callbody" }, lines.length > 0 && drawDiff(item, "diff", lines)),
  );
};

const drawConflictSides = (item) =>
  h(
    "article",
    { class: "call conflict" },
    h(
      "div",
      { class: "callhead" },
      h("b", null, oneLine(item.sides.path, 200)),
      h("span", { class: "word failed" }, item.kind),
    ),
    h(
      "div",
      { class: "callbody versions" },
      Object.entries(SIDES).map(([name, words]) => {
        const text = item.sides[name];
        return h(
          "div",
          { class: `version ${name}` },
          h("h3", null, words),
          text === null || text === undefined
            ? h("p", { class: "note" }, "no file, or no text")
            : drawTextBox(item, name, text),
        );
      }),
    ),
  );

Object.assign(PANES, { changer: drawChanger, merge: drawMergeHead, change: drawChangedFile, sides: drawConflictSides });
Object.assign(PANE_HEIGHTS, { changer: 48, merge: 60, change: 160, sides: 400 });
