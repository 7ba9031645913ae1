// Numbers, times and states as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const decimal = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

/** A count. Numbers of 64 bits come as text. */
export const count = (value) => whole.format(Number(value || 0));

/** A count with its noun. */
export const counted = (value, one, many) => `${count(value)} ${Number(value) === 1 ? one : many || one + "s"}`;

/** Compute, given in thousandths of a TFLOPS. */
export function tflops(milli) {
  const value = Number(milli || 0) / 1000;
  if (value >= 1e6) return decimal.format(value / 1e6) + " EFLOPS";
  if (value >= 1e4) return decimal.format(value / 1e3) + " PFLOPS";
  return decimal.format(value) + " TFLOPS";
}

/** Memory, given in MiB. */
export function memory(mib) {
  const value = Number(mib || 0);
  if (value >= 1 << 20) return decimal.format(value / (1 << 20)) + " TiB";
  if (value >= 1 << 10) return decimal.format(value / (1 << 10)) + " GiB";
  return decimal.format(value) + " MiB";
}

/** Bytes. */
export const bytes = (value) => Number(value) < 1024 ? count(value) + " B" : Number(value) < 1 << 20 ? decimal.format(Number(value) / 1024) + " KiB" : memory(Number(value) / (1 << 20));

/** A number with a digit or two behind the point. */
export const decimals = (value) => decimal.format(Number(value || 0));

/** A share in percent. */
export const percent = (part, all) => all > 0 ? decimal.format(Math.round(1000 * part / all) / 10) + " %" : "0 %";

/** A duration such as "3.5s", as people say it. */
export function duration(text) {
  if (!text) return "";
  return seconds(parseFloat(text));
}

/** So many seconds, as people say it. */
export function seconds(value) {
  const size = Math.abs(value);
  if (size < 1) return Math.round(value * 1000) + " ms";
  if (size < 60) return decimal.format(Math.round(value * 10) / 10) + " s";
  const [days, hours, minutes] = [Math.floor(size / 86400), Math.floor(size / 3600) % 24, Math.floor(size / 60) % 60];
  const sign = value < 0 ? "-" : "";
  if (days) return `${sign}${days} d ${hours} h`;
  if (hours) return `${sign}${hours} h ${minutes} min`;
  return `${sign}${minutes} min ${Math.floor(size) % 60} s`;
}

const pad = (value, width = 2) => String(value).padStart(width, "0");

/** A time, to the second, in the reader's zone. */
export function time(text) {
  if (!text) return "";
  const at = new Date(text);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

/** How long lies between two times; the second may be now. */
export const between = (from, to) => from ? seconds(Math.max(0, (to ? new Date(to) : new Date()) - new Date(from)) / 1000) : "";

/** The word of an enumeration: JOB_STATE_RUNNING is "running". */
export function word(name, prefix) {
  return String(name || "").replace(prefix, "").replaceAll("_", " ").toLowerCase();
}

export const jobState = (name) => word(name, "JOB_STATE_");
export const nodeState = (name) => word(name, "NODE_STATE_");
export const eligibility = (name) => word(name, "ELIGIBILITY_");
export const kind = (name) => word(name, "CARD_KIND_").toUpperCase();

/** The swatch of a job's state. */
export const jobSwatch = (name) => ({
  JOB_STATE_PENDING: "free", JOB_STATE_STARTING: "held", JOB_STATE_RUNNING: "running", JOB_STATE_SUSPENDING: "draining",
  JOB_STATE_SUSPENDED: "other", JOB_STATE_MOVING: "draining", JOB_STATE_COMPLETING: "held", JOB_STATE_COMPLETED: "good",
  JOB_STATE_FAILED: "lost", JOB_STATE_CANCELLED: "offline", JOB_STATE_TIMEOUT: "lost",
}[name] || "free");

/** The states of jobs in the order in which they are listed. */
export const JOB_STATES = ["pending", "starting", "running", "suspending", "suspended", "moving", "completing", "completed", "failed", "cancelled", "timeout"];

/** The states of blocks in the order in which bars show them. */
export const BLOCK_STATES = ["running", "held", "draining", "lost", "offline", "free"];
