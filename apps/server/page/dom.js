// Elements without markup: what comes from the server is text, never HTML.

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

/** An element with attributes (`on`: listeners) and children, which are nodes or texts. */
export const h = (tag, properties = {}, ...children) =>
  build(document.createElement(tag), properties, children);

/** The same of SVG. */
export const svg = (tag, properties = {}, ...children) =>
  build(document.createElementNS(kSvg, tag), properties, children);

/** The element of that id, which index.html has. */
export const at = (id) => document.getElementById(id);

/** Says something to screen readers, politely. */
export function announce(text) {
  at("announcer").textContent = text;
}

/** Sets a text only where it changed: live regions then speak once. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const narrow = () => matchMedia("(max-width: 719px)").matches;
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

const kFrame = 40; // ms; a hidden page has no frames of its own

/** A function that makes `draw` happen soon, once for all calls until then. */
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
