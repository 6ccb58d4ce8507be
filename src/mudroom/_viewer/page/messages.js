// Notes, messages between runs, and notifications of background work, in a transcript.
"use strict";

const MESSAGE = /^<message from="[^"]*"(?: approve="\w+")?>\n?([^]*?)\n?<\/message>\s*$/;
const NOTIFICATION = /^<task-notification>\n([^]*?)<result>\n([^]*)\n<\/result>/;
const STATUS_STATES = { completed: "done", failed: "failed", stopped: "stopped" };

const drawNotice = (name, text) =>
  h("div", { class: "notice" }, h("b", null, name), h("span", null, sanitize(text)));

/** Return a note of the engine, of the user or of a hook, or a message of another run. */
const drawNote = (item) => {
  const [, head, result] = NOTIFICATION.exec(item.text) ?? [];
  // A notification comes from the work that ended, or in imported logs from the engine. A text of
  // the user or of a hook can only look like one.
  if (head && (item.origin === "engine" || head.includes(`<task-id>${item.origin}</task-id>`)))
    return drawNotification(item, head, result);
  if (item.origin === "user") return drawNotice("you", item.text);
  if (item.origin === "hook")
    return splitHookTexts(item.text).map(([name, text]) => drawNotice(name, text));
  const sender = app.fold.runs.get(item.origin);
  if (!sender) return drawNotice(item.origin, item.text);
  const text = MESSAGE.exec(item.text)?.[1] ?? item.text;
  return drawArrival(item, sender, `message from ${runName(sender)} ${sender.id}`, text);
};

/** Return the card of the notification that background work has ended. */
const drawNotification = (item, head, result) => {
  const read = (tag) => new RegExp(`<${tag}>(.*?)</${tag}>`).exec(head)?.[1] ?? "";
  const [id, status, title] = ["task-id", "status", "task"].map(read);
  const child = app.fold.runs.get(id);
  return drawArrival(
    item,
    child,
    `${child ? `${runName(child)} ${id}` : id} ${status} in the background`,
    result,
    STATUS_STATES[status] ?? "done",
    title,
    drawChildReport(item, child, result),
  );
};

const drawArrival = (item, sender, words, text, state = "message", title = "", body = null) =>
  h(
    "article",
    { class: "call arrival" },
    h(
      "div",
      { class: "callhead" },
      h("i", { class: `dot ${state}` }),
      h("b", null, words),
      h("span", { class: "call-title" }, oneLine(title, 120)),
      drawCopyButton(() => text, "the message"),
      sender && goButton(place(sender), { class: "more" }, "open →"),
    ),
    h(
      "div",
      { class: "arrived" },
      body ?? drawMarkdownBox(item, "message", text, FOLDED_LINES),
    ),
  );

/** Return true if a child goes on after the call that started it has its result. */
const isInBackground = ({ child, result, span }) =>
  Boolean(child && result && span?.to && (!child.finished || child.finished > span.to));
