// Elements without markup: server data becomes text, never HTML.

const kSvg = "http://www.w3.org/2000/svg";

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false));
  return element;
}

/** Creates an element with attributes (`on`: listeners) and children (nodes or texts). */
export const h = (tag, properties = {}, ...children) =>
  build(document.createElement(tag), properties, children);

/** Creates an SVG element. */
export const svg = (tag, properties = {}, ...children) =>
  build(document.createElementNS(kSvg, tag), properties, children);

/** Returns the element of index.html with this id. */
export const at = (id) => document.getElementById(id);

/** Announces a text to screen readers, politely. */
export function announce(text) {
  at("announcer").textContent = text;
}

/** Sets a text only on a change, so that live regions speak once. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const narrow = () => matchMedia("(max-width: 719px)").matches;
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

const kFrame = 40; // ms; a hidden page has no animation frames

/** Returns a function that schedules `draw` soon, once for all calls until then. */
export function soon(draw) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    setTimeout(() => {
      due = false;
      draw();
    }, kFrame);
  };
}
