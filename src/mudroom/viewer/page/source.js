// Where events come from: the server, live, or the file this page was exported into.
"use strict";

/** The session inside this file, null where a server is to be asked. */
const given = () => {
  const node = $("embedded");
  return node ? { session: node.dataset.session, ...JSON.parse(node.textContent) } : null;
};

const ask = async (path) => {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `HTTP ${answer.status}`);
  return answer.json();
};

const sessionsThere = () => ask("api/sessions");

/** Follow a session: first what is recorded, page by page, then what comes, for as long as it is not closed.
 *
 * on.events([[number, event], …]), on.ready(), on.trouble(words), on.line(whether the server can be reached).
 */
class Feed {
  constructor(session, on) {
    Object.assign(this, { session, on, last: 0, ended: false });
    this.#recorded();
  }

  close() {
    this.ended = true;
    this.stream?.close();
  }

  async #recorded() {
    try {
      for (let more = true; more && !this.ended; ) {
        const page = await ask(`api/sessions/${encodeURIComponent(this.session)}/events?after=${this.last}`);
        if (this.ended) return;
        this.#take(page.events);
        more = page.more;
        if (page.error) this.on.trouble(page.error);
        if (page.error) this.ended = true;
      }
    } catch (error) {
      this.on.trouble(String(error.message ?? error));
      this.ended = true;
    }
    this.on.ready();
    if (!this.ended) this.#follow();
  }

  #follow() {
    this.stream = new EventSource(`api/sessions/${encodeURIComponent(this.session)}/live?after=${this.last}`);
    let waiting = [];
    this.stream.onopen = () => this.on.line(true);
    this.stream.onerror = () => this.on.line(false);
    this.stream.onmessage = (message) => {
      if (!waiting.length)
        requestAnimationFrame(() => {
          const events = waiting;
          waiting = [];
          if (!this.ended) this.#take(events);
        });
      waiting.push([Number(message.lastEventId), JSON.parse(message.data)]);
    };
    this.stream.addEventListener("failure", (message) => {
      this.on.trouble(JSON.parse(message.data));
      this.close();
    });
  }

  #take(events) {
    if (!events.length) return;
    this.last = events.at(-1)[0];
    this.on.events(events);
  }
}
