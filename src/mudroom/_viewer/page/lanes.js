// The lanes of named children, and the arrows of messages between the lanes.
"use strict";

/** Return the children of all runs of a lane, in the order of the calls that started them. */
const laneChildren = (first) => first.lane.flatMap((run) => run.children).sort(comparePlaces);

/** Compare two run ids such as "1.2.10": run, turn and position of the call that started it. */
const comparePlaces = (a, b) => a.id.localeCompare(b.id, "en", { numeric: true });

/** Return tool calls, tokens, costs and time of the runs of a lane. */
const laneFigures = (lane) => {
  const sum = (value) => lane.reduce((all, run) => all + value(run), 0);
  const tools = sum((run) => run.tools);
  const below = sum((run) => totalTokens(run.below));
  return [
    lane.length > 1 ? plural(lane.length, "run") : "",
    tools ? plural(tools, "tool") : "",
    `${formatTokens(sum((run) => totalTokens(run.usage)))}${below ? ` +${formatTokens(below)}` : ""}`,
    lane.some((run) => run.usd === null) ? "" : formatMoney(sum((run) => run.usd)),
    formatSeconds(sum(runSeconds)),
  ].filter(Boolean);
};

/** Draw the parts of the arrows that are in one row. `rowOf`: run id -> index of its row. */
const drawArrows = (context, { messages, row, rowOf, x, colour }) => {
  const middle = ROW_HEIGHT / 2;
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 1.2;
  for (const message of messages) {
    const [from, to] = [rowOf(message.from), rowOf(message.to)];
    if (from === undefined || to === undefined || from === to) continue;
    if (row < Math.min(from, to) || row > Math.max(from, to)) continue;
    const at = x(message.at);
    const isDown = to > from;
    const top = row === from && isDown ? middle : row === to && !isDown ? middle : 0;
    const bottom = row === from && !isDown ? middle : row === to && isDown ? middle : ROW_HEIGHT;
    context.beginPath();
    context.moveTo(at, top);
    context.lineTo(at, bottom);
    context.stroke();
    context.beginPath();
    if (row === from) context.arc(at, middle, 2.4, 0, 2 * Math.PI);
    if (row === to) {
      const tail = isDown ? middle - 6 : middle + 6;
      context.moveTo(at, middle);
      context.lineTo(at - 3.6, tail);
      context.lineTo(at + 3.6, tail);
    }
    context.fill();
  }
};

const describeMessage = (fold, { from, to, text }) => {
  const name = (id) => (fold.runs.has(id) ? `${runName(fold.runs.get(id))} ${id}` : id);
  return `${name(from)} → ${name(to)}: ${oneLine(text, 160)}`;
};

/** Return buttons for the other runs of a child, null for a child with one run. */
const drawLaneLinks = ({ lane, name, id }) =>
  lane.length > 1 &&
  h(
    "div",
    { class: "lane-links" },
    `runs of ${name || "this child"}: `,
    lane.map((run) =>
      goButton(place(run), { "aria-current": run.id === id ? "true" : null }, run.id),
    ),
  );
