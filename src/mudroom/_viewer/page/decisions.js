// Decisions of a tool call: permissions, answers to the questions of servers, texts of hooks.
"use strict";

const HOOK_TEXT = /^\[hook (\w+)\] ?([^]*)$/;

/** Return the lines of a call with all decisions about it. */
const drawDecisions = (item) =>
  (item.decisions ?? []).map((each) =>
    each.type === "input_answered" ? drawInputAnswer(each) : drawPermission(each),
  );

/** Return a line with a permission; a call that no rule allows was asked for. */
const drawPermission = (event) => {
  const asked = event.verdict === "ask" ? "asked, " : "";
  const { why = "", answer = "", rule = "", part = "" } = event;
  const origin = rule && !rule.startsWith("hook:") ? `rule: ${rule}` : rule;
  const text = [answer, why, origin, part && `in: ${part}`].filter(Boolean).join("; ");
  const word = event.allowed ? "allowed" : "denied";
  return drawDecision(`${asked}${word}`, text, word);
};

/** Return the question of a server and its answer. */
const drawInputAnswer = (event) => {
  const values = Object.entries(event.values ?? {});
  const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const word = event.allowed ? "allowed" : "denied";
  return [
    drawDecision(`${event.server} asked`, event.message),
    event.url && drawDecision("address", event.url),
    event.allowed
      ? drawDecision("answered", event.url ? "the user agreed to open it" : "", word)
      : drawDecision("declined", event.why ?? "", word),
    values.length > 0 &&
      h(
        "dl",
        { class: "arguments" },
        values.map(([name, value]) => [
          h("dt", null, oneLine(name)),
          h("dd", null, oneLine(written(value), 400)),
        ]),
      ),
  ];
};

const drawDecision = (name, text, kind = "") =>
  h(
    "div",
    { class: `decision ${kind}` },
    h("b", null, oneLine(name)),
    h("span", null, sanitize(text)),
  );

/** Return what hooks added to the result of a call, for the model. */
const drawHookContext = (result) =>
  splitHookTexts(result.context ?? "").map(([name, text]) => drawNotice(name, text));

/** Return the texts of hooks as [name, text]. */
const splitHookTexts = (context) =>
  context
    .split(/^(?=\[hook \w+\])/m)
    .filter((each) => each.trim())
    .map((each) => {
      const [, event, text] = HOOK_TEXT.exec(each.trim()) ?? [null, "", each.trim()];
      return [event ? `hook ${event}` : "hook", text];
    });

/** Return the texts of the decisions, for the search. */
const decisionTexts = (item) =>
  (item.decisions ?? []).map((event) =>
    event.type === "input_answered"
      ? [event.message, event.url, event.why, JSON.stringify(event.values ?? {})].join(" ")
      : [event.answer, event.why, event.rule, event.part].join(" "),
  );
