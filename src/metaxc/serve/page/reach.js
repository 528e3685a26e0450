// The queries that reach an item, encoder alone beside meta-classifier; what changed is told by icon and word.

import { byId, grouped, h, icon, keyed, spoken } from "./dom.js";

const FEW = 10;
let all = false;
let last = null;

const change = (name) => h("span", { class: `change is-${name}` }, icon(name), name);

function row({ query }) {
  return h(
    "li",
    { class: "reached-row" },
    h("span", { class: "rank" }, spoken("rank "), h("span", { class: "rank-number" })),
    h("span", { class: "reached-query", title: query, dir: "auto" }, query),
    h("span", { class: "was" }),
    h("span", { class: "reached-change" }),
  );
}

/** What changed first, then by rank. */
const order = (field) => (a, b) => (a.change === "kept") - (b.change === "kept") || a[field] - b[field];

function column(list, reached, field) {
  const ranked = reached.filter((entry) => entry[field] !== null).sort(order(field));
  const shown = all ? ranked : ranked.slice(0, FEW);
  keyed(
    list,
    shown,
    (entry) => entry.query,
    row,
    (node, entry) => {
      node.querySelector(".rank-number").textContent = entry[field];
      const moved = field === "meta_rank" && entry.change === "kept" && entry.encoder_rank !== entry.meta_rank;
      node.querySelector(".was").textContent = moved ? `was ${entry.encoder_rank}` : "";
      node.dataset.change = entry.change;
      const mark = node.querySelector(".reached-change");
      if (mark.dataset.change !== entry.change) {
        mark.dataset.change = entry.change;
        mark.replaceChildren(change(entry.change));
      }
    },
  );
  if (!ranked.length) list.append(h("li", { class: "empty" }, "No query has it among its first ten results."));
  return ranked.length;
}

/** How many were gained, lost and kept. */
export function tallied(reached) {
  const tally = { gained: 0, lost: 0, kept: 0 };
  for (const entry of reached) tally[entry.change] += 1;
  return tally;
}

/** Where there is nothing to list, one sentence says why. */
function showNone({ reached, pool }) {
  const none = reached.length === 0;
  byId("reach-none").hidden = !none;
  byId("reach-columns").hidden = none;
  byId("tally").hidden = none;
  byId("reach-none").textContent = pool
    ? `None of the known queries (${grouped(pool)}) has it among its first ten results, by its text or by its meta-classifier.`
    : "This catalog knows no queries, so it cannot tell who would find the item. A catalog that is created with --data DATA keeps a sample of them.";
}

export function showReached(preview) {
  last = preview;
  showNone(preview);
  const { gained, lost, kept } = tallied(preview.reached);
  byId("tally").replaceChildren(
    h(
      "span",
      { class: "change is-gained" },
      icon("gained"),
      h("b", {}, gained ? `+${grouped(gained)}` : "0"),
      " gained",
    ),
    h("span", { class: "change is-lost" }, icon("lost"), h("b", {}, grouped(lost)), " lost"),
    h("span", { class: "change is-kept" }, icon("kept"), h("b", {}, grouped(kept)), " kept"),
    h("span", { class: "soft" }, ` of ${grouped(preview.pool)} known queries`),
  );
  const longest = Math.max(
    column(byId("reached-encoder"), preview.reached, "encoder_rank"),
    column(byId("reached-meta"), preview.reached, "meta_rank"),
  );
  const more = byId("reach-more");
  more.hidden = longest <= FEW;
  more.textContent = all ? `Show the first ${FEW}` : `Show all ${grouped(longest)}`;
  more.setAttribute("aria-expanded", String(all));
}

byId("reach-more").addEventListener("click", () => {
  all = !all;
  showReached(last);
});
