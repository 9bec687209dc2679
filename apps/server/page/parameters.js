// The text "parameters" of an image: the prompt, "Negative prompt: ...", and a last line "Name: value, ...".

const kField = /(\w[\w ]*): ("(?:\\.|[^"\\])*"|[^,]*)(?:, |$)/g;

const unquoted = (value) => (value.startsWith('"') ? value.slice(1, -1).replace(/\\(.)/g, "$1") : value);

/** {prompt, negative (or undefined), fields: Map of name to text}. */
export function parseParameters(text) {
  const lines = text.split("\n");
  const last = /(^|, )Steps: \d/.test(lines.at(-1)) ? lines.pop() : "";
  const split = lines.findIndex((line) => line.startsWith("Negative prompt: "));
  const negative = split < 0 ? undefined : lines.slice(split).join("\n").slice("Negative prompt: ".length);
  const fields = new Map();
  for (const [, name, value] of last.matchAll(kField)) fields.set(name, unquoted(value));
  return { prompt: lines.slice(0, split < 0 ? undefined : split).join("\n"), negative, fields };
}

const number = (text) => (text !== undefined && text !== "" && Number.isFinite(Number(text)) ? Number(text) : undefined);

/** The same by the names of a request; `subject` is the prompt or the class. */
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
