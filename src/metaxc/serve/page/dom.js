// Elements are built here and only here: texts go in as text nodes, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Sets attributes (`on` is a map of listeners, false and null leave an attribute out) and appends children. */
function dressed(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const h = (tag, attributes = {}, ...children) => dressed(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  dressed(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

const ICONS = {
  gained: "M8 12.5v-9M4 7.2l4-4 4 4",
  lost: "M8 3.5v9M4 8.8l4 4 4-4",
  kept: "M3.5 6h9M3.5 10h9",
  close: "m4 4 8 8M12 4l-8 8",
  check: "m3 8.5 3.5 3.5L13 4.5",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  plus: "M8 3v10M3 8h10",
  click: "M5 3l8 4.5-3.6 1.2L7.6 13z",
};

export const icon = (name) =>
  svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));

/** Words that only a screen reader says. */
export const spoken = (text) => h("span", { class: "spoken" }, text);

/** Brings a list's children in line with `entries`, keeping the nodes of known keys: bars glide, focus stays. */
export function keyed(list, entries, keyOf, make, update) {
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  const old = new Map();
  for (const node of [...list.children]) {
    if (node.dataset.key === undefined)
      node.remove(); // what stood in for an answer
    else old.set(node.dataset.key, node);
  }
  let place = list.firstElementChild;
  for (const entry of entries) {
    const key = keyOf(entry);
    let node = old.get(key);
    if (node) old.delete(key);
    else {
      node = make(entry);
      node.dataset.key = key;
    }
    update(node, entry);
    if (node === place) place = place.nextElementSibling;
    else list.insertBefore(node, place);
  }
  for (const node of old.values()) node.remove();
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

/** Runs `work` after a pause in the calls; `.now()` does not wait. */
export function debounced(work, milliseconds) {
  let timer = 0;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(work, milliseconds);
  };
  later.now = () => {
    clearTimeout(timer);
    work();
  };
  return later;
}

const whole = new Intl.NumberFormat("en");
export const count = (number, noun, nouns = `${noun}s`) =>
  `${whole.format(number)} ${number === 1 ? noun : nouns}`;
export const grouped = (number) => whole.format(number);
const minus = (text) => text.replace("-", "−");
export const decimal = (number, digits = 2) => {
  const text = number.toFixed(digits);
  return minus(Number(text) === 0 ? (0).toFixed(digits) : text);
};
export const percent = (number) => `${decimal(number, 1)} %`;
export const milliseconds = (seconds) => {
  const value = 1000 * seconds;
  return `${value.toFixed(value < 10 ? 1 : 0)} ms`;
};
export const shortened = (text, most) => {
  const letters = [...text];
  return letters.length <= most
    ? text
    : `${letters
        .slice(0, most - 1)
        .join("")
        .trimEnd()}…`;
};

/** Rows that stand in until the first answer is there. */
export const bones = (number) =>
  Array.from({ length: number }, () => h("li", { class: "bone", "aria-hidden": "true" }));
