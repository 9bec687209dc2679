// The text "parameters" of an image: the prompt, "Negative prompt: ...", and a last line "Name: value, ...".

const kMost = 65536; // maximum characters to parse, because files are untrusted

const unquoted = (value) => (/^".*"$/.test(value) ? value.slice(1, -1).replace(/\\(.)/g, "$1") : value);

/** Returns the end of a quoted value at `at`, after the last quote; -1: unterminated. */
function quotedEnd(line, at) {
  for (let i = at + 1; i < line.length; i++) {
    if (line[i] === "\\") i++;
    else if (line[i] === '"') return i + 1;
  }
  return -1;
}

/** Returns a Map of name to value for "Name: value, Name: value", in a single pass. */
function fieldsOf(line) {
  const fields = new Map();
  for (let at = 0; at < line.length; ) {
    const colon = line.indexOf(": ", at);
    if (colon < 0) break;
    const name = line.slice(Math.max(at, colon - 100), colon).split(", ").at(-1);
    const begin = colon + 2;
    let end = line[begin] === '"' ? quotedEnd(line, begin) : -1;
    if (end < 0 || (end < line.length && !line.startsWith(", ", end))) {
      const comma = line.indexOf(", ", begin);
      end = comma < 0 ? line.length : comma;
    }
    if (/^\w[\w ]*$/.test(name)) fields.set(name, unquoted(line.slice(begin, end)));
    at = end + 2;
  }
  return fields;
}

/** Returns {prompt, negative (or undefined), fields: Map of name to text}. */
export function parseParameters(given) {
  const lines = given.slice(0, kMost).split("\n");
  const last = /(^|, )Steps: \d/.test(lines.at(-1)) ? lines.pop() : "";
  const split = lines.findIndex((line) => line.startsWith("Negative prompt: "));
  const negative = split < 0 ? undefined : lines.slice(split).join("\n").slice("Negative prompt: ".length);
  const fields = fieldsOf(last);
  return { prompt: lines.slice(0, split < 0 ? undefined : split).join("\n"), negative, fields };
}

const number = (text) => (text !== undefined && text !== "" && Number.isFinite(Number(text)) ? Number(text) : undefined);

/** Returns the same with names of a request; `subject` is the prompt or the class. */
export function requestOf(text) {
  const { prompt, negative, fields } = parseParameters(text);
  const size = /^(\d+)x(\d+)$/.exec(fields.get("Size") ?? "");
  const found = {
    model: fields.get("Model"),
    subject: prompt,
    negative_prompt: negative,
    steps: number(fields.get("Steps")),
    guidance: number(fields.get("CFG scale")),
    seed: number(fields.get("Seed")),
    width: size ? Number(size[1]) : undefined,
    height: size ? Number(size[2]) : undefined,
    count: number(fields.get("Batch size")),
    scheduler: fields.get("Sampler"),
  };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}
