// Sources of events: the server, live, or the exported file that contains this page.
"use strict";

/** Return the session in this file, null if the page comes from a server. */
const readEmbeddedSession = () => {
  const node = $("embedded");
  return node ? { session: node.dataset.session, ...JSON.parse(node.textContent) } : null;
};

const fetchJson = async (path) => {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `HTTP ${answer.status}`);
  return answer.json();
};

/** Return {sessions, total}: the newest sessions, at most `limit`, and how many there are. */
const fetchSessions = (limit = 200) => fetchJson(`api/sessions?limit=${limit}`);

/** Return the sessions whose ids begin with `start`, of all sessions. */
const findSessions = async (start) =>
  (await fetchJson(`api/sessions?start=${encodeURIComponent(start)}`)).sessions;

/** Reads a session from the server: first its recorded events, then new ones until it is closed.
 *
 * Calls on.events([[position, event], …]), on.ready() after the recorded events, on.failure(text),
 * and on.connection(true or false) when the server becomes reachable or unreachable.
 */
class Feed {
  constructor(session, on) {
    Object.assign(this, { session, on, last: 0, ended: false });
    this.#loadRecorded();
  }

  close() {
    this.ended = true;
    this.stream?.close();
  }

  async #loadRecorded() {
    try {
      for (let more = true; more && !this.ended;) {
        const page = await fetchJson(
          `api/sessions/${encodeURIComponent(this.session)}/events?after=${this.last}`,
        );
        if (this.ended) return;
        this.#deliver(page.events);
        more = page.more;
        if (page.error) this.on.failure(page.error);
        if (page.error) this.ended = true;
      }
    } catch (error) {
      this.on.failure(String(error.message ?? error));
      this.ended = true;
    }
    this.on.ready();
    if (!this.ended) this.#followLive();
  }

  #followLive() {
    this.stream = new EventSource(
      `api/sessions/${encodeURIComponent(this.session)}/live?after=${this.last}`,
    );
    let waiting = [];
    this.stream.onopen = () => this.on.connection(true);
    this.stream.onerror = () => this.on.connection(false);
    this.stream.onmessage = (message) => {
      if (!waiting.length)
        requestAnimationFrame(() => {
          const events = waiting;
          waiting = [];
          if (!this.ended) this.#deliver(events);
        });
      waiting.push([Number(message.lastEventId), JSON.parse(message.data)]);
    };
    this.stream.addEventListener("failure", (message) => {
      this.on.failure(JSON.parse(message.data));
      this.close();
    });
  }

  #deliver(events) {
    if (!events.length) return;
    this.last = events.at(-1)[0];
    this.on.events(events);
  }
}
