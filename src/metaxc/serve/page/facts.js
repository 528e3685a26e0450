// An item's fields (price, brand, …): a few of them in a list of results, all of them in the item's panel.

import { count, h, shortened } from "./dom.js";

const MOST = 4; // fields of one result
const LENGTH = 32; // characters of one value in a result

/** A value as text, for a list of strings all of them. */
const written = (value) => (Array.isArray(value) ? value.join(", ") : String(value));

/** The first fields of an item in one line, and how many more there are. */
export function factsInBrief(fields = {}) {
  const facts = Object.entries(fields);
  const shown = facts.slice(0, MOST).map(([name, value]) =>
    h(
      "span",
      { class: "fact", title: `${name}: ${written(value)}` },
      h("span", { class: "fact-name" }, `${name} `),
      h("span", { class: "fact-value", dir: "auto" }, shortened(written(value), LENGTH)),
    ),
  );
  const left = facts.length - shown.length;
  return left ? [...shown, h("span", { class: "fact" }, `and ${count(left, "more field")}`)] : shown;
}

/** All fields of an item under a heading; nothing for an item without any. */
export function factSheet(fields = {}) {
  const facts = Object.entries(fields);
  if (!facts.length) return [];
  return [
    h("h3", {}, "Fields"),
    h(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => [h("dt", {}, name), h("dd", { dir: "auto" }, written(value))]).flat(),
    ),
  ];
}
