// Readable numbers; a number and the unit stay on the same line.

const kGap = "\u00a0";

/** 1234567 -> "1.2 MB" (powers of 1000). */
export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (n >= 999.5 && unit < units.length - 1) {
    n /= 1000;
    ++unit;
  }
  return `${unit === 0 || n >= 99.5 ? Math.round(n) : n.toFixed(1)}${kGap}${units[unit]}`;
}

/** 0.0421 -> "42 ms", 3.24 -> "3.2 s", 75 -> "1 min 15 s", 3700 -> "1 h 2 min". */
export function seconds(s) {
  if (s < 0.9995) return `${Math.round(s * 1000)}${kGap}ms`;
  if (s < 9.95) return `${s.toFixed(1)}${kGap}s`;
  const whole = Math.round(s);
  if (whole < 60) return `${whole}${kGap}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}${kGap}min ${whole % 60}${kGap}s`;
  return `${Math.floor(whole / 3600)}${kGap}h ${Math.floor((whole % 3600) / 60)}${kGap}min`;
}

/** 0.826 -> "83 %". */
export const percent = (share) => `${Math.round(share * 100)}${kGap}%`;

/** counted(1, "image") -> "1 image", counted(4, "pass") -> "4 passes". */
export const counted = (n, what) => `${n} ${what}${n === 1 ? "" : what.endsWith("s") ? "es" : "s"}`;

/** Reason why a queued job waits: the position from 0, or another reason. */
export function line(job) {
  if (job.waits_for) return `waits for room in ${job.waits_for.type}`;
  return job.position === undefined ? "waiting" : job.position === 0 ? "next" : `${job.position} before it`;
}

/** Summary of a job in a line: prompt or classes. */
export function subject(job) {
  const r = job.request ?? {};
  const last = r.messages?.at?.(-1)?.content;
  const list = (v) => (Array.isArray(v) ? v.join(", ") : v);
  const text = list(r.prompt ?? r.prompts) ?? list(r.classes) ?? last;
  return text === undefined || text === "" ? "no prompt" : String(text);
}
