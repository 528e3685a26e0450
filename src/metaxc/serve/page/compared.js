// The neighbours in an item's panel: as they are, or before and after a click.

import { decimal, h, icon, percent, spoken } from "./dom.js";
import { largestOf, meter, showNeighbourMeters } from "./shares.js";

const named = ({ text, voter }) =>
  h(
    "span",
    { class: "neighbour-name" },
    h("span", { class: "neighbour-text", title: text, dir: "auto" }, text),
    voter ? h("span", { class: "brought" }, `selected by the query “${voter}”`) : null,
  );

/** The neighbours of an item. */
export function listed(neighbours) {
  if (!neighbours.length)
    return [h("h3", {}, "Neighbours"), h("p", { class: "empty" }, "None: the item has its own classifier.")];
  const largest = largestOf(neighbours);
  return [
    h("h3", {}, "Neighbours"),
    h(
      "div",
      { class: "neighbour-head small", "aria-hidden": "true" },
      ["", "similarity", "weight", "share"].map((word) => h("span", {}, word)),
    ),
    h(
      "ol",
      { class: "neighbours small", id: "panel-neighbours", "aria-label": "Neighbours" },
      neighbours.map((one) => {
        const row = h(
          "li",
          { class: "neighbour" },
          named(one),
          meter("similarity"),
          meter("weight"),
          meter("share"),
        );
        showNeighbourMeters(row, one, largest);
        return row;
      }),
    ),
  ];
}

/** Both lists as one: who came, who left, whose share changed. */
export function compared(before, after) {
  const was = new Map(before.map((one) => [one.id, one]));
  const is = new Map(after.map((one) => [one.id, one]));
  const rows = [...after, ...before.filter((one) => !is.has(one.id))];
  const cell = (one, field, write, word) =>
    h("span", { class: "number" }, spoken(`${field} ${word} `), one ? write(one[field]) : "–");
  return [
    h("h3", {}, "Neighbours before and after"),
    h(
      "div",
      { class: "compared-head", "aria-hidden": "true" },
      h("span", {}, ""),
      h("span", {}, "similarity"),
      h("span", {}, "share"),
      h("span", {}, ""),
    ),
    h(
      "ol",
      { class: "compared", id: "panel-neighbours", "aria-label": "Neighbours before and after" },
      rows.map((one) => {
        const [old, now] = [was.get(one.id), is.get(one.id)];
        const change = old && now ? "kept" : now ? "gained" : "lost";
        const word = { kept: "kept", gained: "added", lost: "removed" }[change];
        return h(
          "li",
          { class: "compared-row", "data-change": change },
          named(one),
          h(
            "span",
            { class: "pair" },
            cell(old, "similarity", decimal, "before"),
            h("i", { "aria-hidden": "true" }, "→"),
            cell(now, "similarity", decimal, "after"),
          ),
          h(
            "span",
            { class: "pair" },
            cell(old, "share", percent, "before"),
            h("i", { "aria-hidden": "true" }, "→"),
            cell(now, "share", percent, "after"),
          ),
          h("span", { class: `change is-${change}` }, icon(change), word),
        );
      }),
    ),
  ];
}
