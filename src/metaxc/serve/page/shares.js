// What a meta-classifier is made of: one stacked bar, and the meters of its neighbours.

import { decimal, h, percent, spoken } from "./dom.js";

const PARTS = [
  ["text", "own text", "text_share"],
  ["neighbours", "neighbours", "neighbour_share"],
  ["learnt", "learnt", "learnt_share"],
  ["clicks", "first clicks", "revealed_share"],
];

/**
 * Fills `bar` and `legend`. What clicks add is called a classifier once the item is observed. A share may be negative
 * (a part that pulls the other way): hatched.
 */
export function showShares(bar, legend, explanation, state = "novel") {
  const parts = PARTS.map(([kind, word, field]) => ({
    kind,
    word: kind === "clicks" && state === "observed" ? "its own classifier" : word,
    share: explanation[field],
  }));
  const total = parts.reduce((sum, part) => sum + Math.abs(part.share), 0) || 1;
  bar.setAttribute("aria-label", parts.map(({ word, share }) => `${word} ${percent(share)}`).join(", "));
  if (!bar.children.length) bar.append(...parts.map(({ kind }) => h("span", { class: `part of-${kind}` })));
  parts.forEach(({ share }, place) => {
    const part = bar.children[place];
    part.style.flexGrow = (Math.abs(share) / total).toFixed(4);
    part.classList.toggle("against", share <= -0.05);
    part.classList.toggle("none", Math.abs(share) < 0.05);
  });
  legend.replaceChildren(
    ...parts.map(({ kind, word, share }) =>
      h(
        "li",
        { class: Math.abs(share) < 0.05 ? "none" : null },
        h("span", { class: `key of-${kind}${share <= -0.05 ? " against" : ""}` }),
        word,
        " ",
        h("b", {}, percent(share)),
      ),
    ),
  );
}

/** A number with a bar under it. */
export function meter(name) {
  return h(
    "span",
    { class: `meter is-${name}` },
    spoken(`${name} `),
    h("span", { class: "meter-number" }),
    h("span", { class: "meter-track" }, h("span", { class: "meter-bar" })),
  );
}

/** Sets a meter: `part` is the bar's length in 0..1 of the column's largest. */
export function setMeter(node, text, part, negative) {
  node.querySelector(".meter-number").textContent = text;
  const bar = node.querySelector(".meter-bar");
  bar.style.width = `${(100 * Math.min(1, Math.max(0, part))).toFixed(1)}%`;
  bar.classList.toggle("against", negative);
}

/** Similarity, weight and share of a neighbour, bars against the largest of the list. */
export function showNeighbourMeters(row, neighbour, largest) {
  for (const name of ["similarity", "weight", "share"]) {
    const value = neighbour[name];
    const text = name === "share" ? percent(value) : decimal(value, name === "weight" ? 3 : 2);
    setMeter(row.querySelector(`.is-${name}`), text, Math.abs(value) / largest[name], value < 0);
  }
}

export function largestOf(neighbours) {
  const most = (name) => Math.max(1e-9, ...neighbours.map((neighbour) => Math.abs(neighbour[name])));
  return { similarity: Math.max(1, most("similarity")), weight: most("weight"), share: most("share") };
}

/** Whether the generator gives neighbours no weight at all. */
export const weightless = (neighbours) =>
  neighbours.length > 0 && neighbours.every((neighbour) => Math.abs(neighbour.weight) < 1e-6);
