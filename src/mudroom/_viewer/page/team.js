// The section "Team" of the summary: the named children, their states and runs, and all messages.
"use strict";

const MAX_MESSAGES = 300; // messages listed; the lanes show all as arrows

/** Return the named children as the conversation has them: without what a rewind removed. */
const computeTeam = (fold) => {
  const isKept = (id) => fold.runs.has(id) && !isAbandoned(fold, fold.runs.get(id));
  const lanes = [...fold.runs.values()].filter((run) => run.name && run.lane[0] === run);
  const team = lanes
    .map((first) => ({
      name: first.name,
      first,
      runs: first.lane.filter((run) => isKept(run.parent)),
      unread: fold.messages.filter(
        ({ to, parent, item }) => to === first.id && !item && isKept(parent),
      ),
    }))
    .filter((mate) => mate.runs.length);
  for (const mate of team) {
    mate.last = mate.runs.at(-1);
    mate.isStopped = findStops(fold, mate.first).some(isKept);
    if (mate.last.report) mate.unread = mate.unread.filter(({ kind }) => kind !== "shutdown");
  }
  team.forEach((mate, n) => {
    const later = team.slice(n + 1).filter(({ name }) => name === mate.name);
    const parents = new Set(mate.runs.flatMap((run) => conversationOf(fold, run.parent)));
    mate.isReplaced = later.some((each) =>
      conversationOf(fold, each.runs[0].parent).some((id) => parents.has(id)),
    );
  });
  return team;
};

/** Return the ids of a run and of the runs that it continues. */
const conversationOf = (fold, id) => {
  const ids = [];
  for (let run = fold.runs.get(id); run; run = fold.runs.get(run.continues)) ids.push(run.id);
  return ids;
};

/** Return the runs of the parent in which a named child was stopped. */
const findStops = (fold, first) => {
  const calls = [...fold.runs.values()].flatMap((run) =>
    [...run.calls.values()].filter((call) => call.result?.detail?.stopped === first.id),
  );
  const requests = fold.messages.filter(({ to, kind }) => to === first.id && kind === "shutdown");
  const refusal = fold.messages.find(
    ({ from, approve, at }) =>
      approve === false && at >= requests[0]?.at && first.lane.some(({ id }) => id === from),
  );
  const enforced = requests.filter(
    ({ at }, n) =>
      (n > 0 || !refusal) && !first.lane.some((run) => run.started <= at && !run.report),
  );
  return [...calls.map(({ run }) => run.id), ...enforced.map(({ parent }) => parent)];
};

/** Return the state of a named child: "idle, 2 runs, 0 unread". */
const describeMate = ({ last, runs, unread, isStopped, isReplaced }) => {
  const states = [
    [isReplaced, "replaced by a newer child"],
    [!last.report, "working"],
    [isStopped, "stopped"],
    [last.brief.plan, "waits for approval"],
    [true, "idle"],
  ];
  const [, state] = states.find(([holds]) => holds);
  const isIdle = last.report && !isStopped && !isReplaced;
  const ending = isIdle && last.report.reason !== "GOAL" ? `, last run: ${reasonWords(last.report.reason)}` : "";
  return `${state}${ending}, ${plural(runs.length, "run")}, ${formatCount(unread.length)} unread`;
};

const drawTeam = (item) => {
  const team = computeTeam(item.fold);
  if (!team.length) return h("span");
  const messages = item.fold.messages.filter(({ kind }) => kind !== "notification");
  return drawSection(
    "team",
    "Team",
    h("ul", { class: "lines" }, team.map(drawMate)),
    messages.length > 0 && h("h3", null, plural(messages.length, "message")),
    messages.slice(0, MAX_MESSAGES).map((message) => drawTeamMessage(item, message)),
    messages.length > MAX_MESSAGES &&
      h("p", { class: "note" }, `and ${formatCount(messages.length - MAX_MESSAGES)} more`),
  );
};

const drawMate = (mate) =>
  h(
    "li",
    null,
    goButton(
      place(mate.last),
      { class: "line" },
      h("i", { class: `mark ${displayState(mate.last, app.live)}` }),
      h(
        "b",
        { class: "who-name", style: { "--hue": String(agentHue(mate.last.agent)) } },
        oneLine(mate.name, 40),
      ),
      h("span", null, `${mate.last.agent} · ${describeMate(mate)}`),
      h("em", null, formatTokens(mate.runs.reduce((sum, run) => sum + totalTokens(run.usage), 0))),
    ),
  );

/** Return a message that opens to its whole text; it stays open as the session grows. */
const drawTeamMessage = (item, message) => {
  const opened = (item.openMessages ??= new Set());
  const toggle = (event) =>
    event.currentTarget.open ? opened.add(message) : opened.delete(message);
  return h(
    "details",
    { class: "team-message", open: opened.has(message), toggle },
    h(
      "summary",
      null,
      oneLine(describeMessage(item.fold, message), 160),
      message.item ? "" : h("em", null, " not read yet"),
    ),
    h("div", { class: "team-text" }, sanitize(message.text)),
    message.item &&
      goButton(place(message.item.run, message.item), { class: "more" }, "where it was read →"),
  );
};

Object.assign(PANES, { team: drawTeam });
Object.assign(PANE_HEIGHTS, { team: 160 });
