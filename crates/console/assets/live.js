// Watches that go on: taken up again where they were cut, and closed while nobody looks at the page.

import { stream } from "./api.js";

const watches = new Set();
const listeners = new Set();

/** Has somebody told how the watches of this page are: "live", "lost" or "idle". */
export function onLink(listener) {
  listeners.add(listener);
}

function tell() {
  const all = [...watches];
  const state = !all.length ? "idle" : all.some((watch) => watch.lost) ? "lost" : all.every((watch) => watch.open) ? "live" : "idle";
  for (const listener of listeners) listener(state);
}

const pause = (time) => new Promise((done) => setTimeout(done, time));

const shown = () => document.visibilityState === "visible" ? Promise.resolve() : new Promise((done) => {
  const look = () => {
    if (document.visibilityState !== "visible") return;
    document.removeEventListener("visibilitychange", look);
    done();
  };
  document.addEventListener("visibilitychange", look);
});

/**
 * Watches until `signal` is aborted.
 *   path, parameters: what to watch;
 *   told(name, data): an event;
 *   anew(refusal): the place where it was is no longer remembered: gives the parameters to begin anew with, or null to give up.
 */
export async function watch({ path, parameters, told, anew, signal }) {
  const self = { open: false, lost: false };
  watches.add(self);
  let [last, begin, tries, since] = [null, parameters, 0, 0];
  tell();
  while (!signal.aborted) {
    await shown();
    const cut = new AbortController();
    const stop = () => cut.abort();
    let hiding = null;
    // Browsers open few connections to one host: pages that nobody looks at give theirs back.
    const hide = () => {
      clearTimeout(hiding);
      if (document.visibilityState !== "visible") hiding = setTimeout(stop, 5000);
    };
    signal.addEventListener("abort", stop);
    document.addEventListener("visibilitychange", hide);
    try {
      const over = await stream(path, begin, last, cut.signal, () => {
        [self.open, self.lost, since] = [true, false, Date.now()];
        tell();
      }, (name, data, id) => {
        if (id) last = id;
        told(name, data);
      });
      if (over && !path.endsWith(":watch")) break;
    } catch (error) {
      const gone = ["WATCH_COMPACTED", "RESUME_TOKEN_INVALID", "OFFSET_BEYOND_END"].includes(error.reason);
      if (gone && anew) {
        last = null;
        begin = await anew(error);
        if (!begin) break;
      } else if (["JOB_UNKNOWN", "WORKER_UNKNOWN", "OUTPUT_EXPIRED", "INVALID_FIELD"].includes(error.reason)) {
        told("refused", error);
        break;
      } else if (!cut.signal.aborted) [self.open, self.lost] = [false, true];
    } finally {
      clearTimeout(hiding);
      signal.removeEventListener("abort", stop);
      document.removeEventListener("visibilitychange", hide);
    }
    if (signal.aborted) break;
    tell();
    // What is cut as soon as it is opened is not asked for again and again.
    if (self.open && Date.now() - since > 5000) tries = 0;
    await pause(Math.min(200 * 2 ** tries++, 5000));
  }
  watches.delete(self);
  tell();
}

/** Calls something soon, and once for all that happens meanwhile: at most once in `pace` milliseconds. */
export function gathered(signal, pace, call) {
  let [waiting, last] = [null, 0];
  return () => {
    if (waiting || signal.aborted) return;
    waiting = setTimeout(async () => {
      [waiting, last] = [null, Date.now()];
      if (!signal.aborted) await call();
    }, Math.max(0, last + pace - Date.now()));
  };
}

/**
 * Draws a view, and draws it anew when the pool has got further than what is shown, at most once in `pace` milliseconds.
 *   refresh(): draws; answers the revision of what is drawn;
 *   failed(error): a later drawing was refused;
 *   always: draws also when nothing happened, as often as the watch says that it is alive: every few seconds.
 */
export async function follow({ signal, pace, refresh, failed = () => {}, always = false }) {
  let revision = await refresh();
  const draw = async () => {
    try {
      revision = await refresh();
    } catch (error) {
      if (!signal.aborted) failed(error);
    }
  };
  const soon = gathered(signal, pace, draw);
  const anew = async () => {
    await draw();
    return { after_revision: revision, progress_only: true };
  };
  const told = (_, { synced, progress }) => {
    const at = (progress || synced || {}).revision;
    if (always || (at && BigInt(at) > BigInt(revision))) soon();
  };
  watch({ path: "pool:watch", parameters: { after_revision: revision, progress_only: true }, told, anew, signal });
}

/** Calls something now and then every `pace` milliseconds, while somebody looks at the page: for readings, which no event tells. */
export async function again(signal, pace, call) {
  while (!signal.aborted) {
    await shown();
    if (!signal.aborted) await call();
    await pause(pace);
  }
}
