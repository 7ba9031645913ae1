// Asking the member that serves this page: questions by JSON, watches by server-sent events.

/** A refusal, with the reason that the API documents. */
export class Refused extends Error {
  constructor(status) {
    super(status.message || "the member does not answer");
    const info = (status.details || []).find((detail) => detail["@type"] === "type.googleapis.com/google.rpc.ErrorInfo");
    this.reason = info ? info.reason : "";
    this.metadata = info ? info.metadata : {};
  }
}

function address(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters || {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== "" && one !== null && one !== undefined) query.append(name, one);
    }
  }
  const text = query.toString();
  return "/v1/" + path + (text ? "?" + text : "");
}

async function refusal(response) {
  try {
    return new Refused(await response.json());
  } catch {
    return new Refused({ message: `the member answered ${response.status}` });
  }
}

/** Asks a question. Answers are what the asked member has applied; pages say so where it matters. */
export async function ask(path, parameters, signal) {
  const response = await fetch(address(path, parameters), { signal, headers: { accept: "application/json" } });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/** Asks a question that is a message of its own; it changes nothing either. */
export async function answer(path, question, signal) {
  const headers = { accept: "application/json", "content-type": "application/json" };
  const response = await fetch(address(path), { method: "POST", body: JSON.stringify(question), signal, headers });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/** What every question carries: any member can answer it, also when no quorum is there. */
export const STALE = { consistency: "stale" };

/** Reads the events of a stream until it ends. */
async function read(response, told) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pieces = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    let rest = value;
    for (;;) {
      // The end of an event may be cut in two.
      const last = pieces.length ? pieces[pieces.length - 1] : "";
      if (last.endsWith("\n") && rest.startsWith("\n")) {
        event(pieces.join(""), told);
        [pieces, rest] = [[], rest.slice(1)];
        continue;
      }
      const end = rest.indexOf("\n\n");
      if (end < 0) break;
      event(pieces.join("") + rest.slice(0, end), told);
      [pieces, rest] = [[], rest.slice(end + 2)];
    }
    if (rest) pieces.push(rest);
  }
}

function event(text, told) {
  let [name, id, data] = ["message", null, []];
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const field = line.slice(0, colon);
    const value = line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "event") name = value;
    else if (field === "id") id = value;
    else if (field === "data") data.push(value);
  }
  if (data.length) told(name, JSON.parse(data.join("\n")), id);
}

/** Opens a stream once. Ends when it ends; throws a refusal when it is refused or cut. */
export async function stream(path, parameters, lastEvent, signal, opened, told) {
  const headers = { accept: "text/event-stream" };
  if (lastEvent) headers["last-event-id"] = lastEvent;
  const response = await fetch(address(path, parameters), { signal, headers, cache: "no-store" });
  if (!response.ok) throw await refusal(response);
  opened();
  let over = false;
  await read(response, (name, data, id) => {
    if (name === "refused") throw new Refused(data);
    if (name === "end") over = true;
    else told(name, data, id);
  });
  return over;
}
