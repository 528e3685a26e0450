// The first view: a new item's text, and at once where it comes from, where it lands and who finds it.

import { offer, startAdding } from "./add.js";
import { STALE, api, lane } from "./api.js";
import { chipBox, learnTags } from "./chips.js";
import { byId, count, debounced, h, keyed, milliseconds, shortened } from "./dom.js";
import { mapIn } from "./map.js";
import { calm, complain, say, tried } from "./notices.js";
import { showReached, tallied } from "./reach.js";
import { address, note } from "./route.js";
import { largestOf, meter, showNeighbourMeters, showShares, weightless } from "./shares.js";
import { showCall } from "./snippets.js";

const PAUSE = 250;
const STAGES = ["encode", "select", "generate", "reach", "map"];
const REGIONS = ["made", "map-sheet", "stages-sheet", "reach"];

const asked = { text: null, without: [], revealed: [] };
const field = byId("item-text");
const request = lane();
let map = null;
let revealed = null;
let examples = null;
let known = new Map(); // the examples by their texts

const busy = (is) => REGIONS.forEach((id) => byId(id).setAttribute("aria-busy", String(is)));
const empty = (is) => byId("view-new").classList.toggle("nothing", is);

async function recompute() {
  note("new", asked);
  const text = (asked.text ?? "").trim();
  showCall({ ...asked, text });
  offer(text, known.get(text)?.id);
  if (!text) {
    await request(async () => null);
    busy(false);
    empty(true);
    return;
  }
  empty(false);
  busy(true);
  try {
    const preview = await request((signal) => api.preview({ ...asked, text }, signal));
    if (preview === STALE) return;
    calm();
    showCall({ ...asked, text }); // again: a token may have been asked for meanwhile
    show(preview);
  } catch (error) {
    complain(error);
  }
  busy(false);
}

const soon = debounced(recompute, PAUSE);

function show(preview) {
  const { explanation, off } = preview;
  byId("view-new").classList.remove("first");
  showShares(byId("shares"), byId("shares-legend"), explanation);
  byId("weightless").hidden = !weightless(explanation.neighbours);
  showNeighbours(explanation.neighbours, off);
  byId("all-on").hidden = asked.without.length === 0;
  map.show(preview.points);
  showStages(preview.seconds);
  showReached(preview);
  showStory(preview);
  const { gained, lost, kept } = tallied(preview.reached);
  const near = `${count(explanation.neighbours.length, "neighbour")}, ${off.length} off.`;
  say(`${near} Queries: ${gained} gained, ${lost} lost, ${kept} kept.`);
}

/** The way to the first click: an item of the catalog beside a query that finds it, where one click is left to do. */
function showStory({ text, reached }) {
  const item = known.get(text);
  const found = reached.find((one) => one.meta_rank !== null);
  byId("story").href = item
    ? address("search", { q: found?.query ?? item.text, item: item.id })
    : address("search", { q: found?.query ?? text });
}

/** On and off in one list, by similarity, so that a switched-off neighbour keeps its place. */
function showNeighbours(on, off) {
  const largest = largestOf([...on, ...off]);
  const rows = [...on.map((one) => ({ ...one, used: true }))];
  for (const one of off) {
    const place = rows.findIndex((row) => row.similarity < one.similarity);
    rows.splice(place < 0 ? rows.length : place, 0, { ...one, used: false });
  }
  const list = byId("neighbours");
  keyed(
    list,
    rows,
    (row) => row.id,
    neighbourRow,
    (node, row) => {
      node.classList.toggle("off", !row.used);
      node.querySelector(".switch").checked = row.used;
      const by = node.querySelector(".brought");
      by.textContent = row.used ? (row.voter ? `selected by the query “${row.voter}”` : "") : "switched off";
      by.hidden = by.textContent === "";
      showNeighbourMeters(node, row, largest);
    },
  );
  if (!rows.length) list.append(h("li", { class: "empty" }, "No neighbour informs this item."));
}

function neighbourRow({ id, text }) {
  const lift = () => map.point(text);
  const drop = () => map.point(null);
  return h(
    "li",
    { class: "neighbour", on: { pointerenter: lift, pointerleave: drop, focusin: lift, focusout: drop } },
    h("input", {
      type: "checkbox",
      role: "switch",
      class: "switch",
      "aria-label": `Use the neighbour ${text}`,
      on: { change: (event) => turn(id, event.target.checked) },
    }),
    h(
      "span",
      { class: "neighbour-name" },
      h("span", { class: "neighbour-text", title: text, dir: "auto" }, text),
      h(
        "span",
        { class: "neighbour-more" },
        h("a", { class: "id", href: address("search", { item: id }), "aria-label": `Explain ${id}` }, id),
        h("span", { class: "brought" }),
      ),
    ),
    meter("similarity"),
    meter("weight"),
    meter("share"),
  );
}

function turn(id, on) {
  asked.without = asked.without.filter((other) => other !== id);
  if (!on) asked.without.push(id);
  soon.now();
}

function showStages(seconds) {
  const total = STAGES.reduce((sum, stage) => sum + (seconds[stage] ?? 0), 0);
  const most = Math.max(1e-9, ...STAGES.map((stage) => seconds[stage] ?? 0));
  byId("stages-total").textContent = `${milliseconds(total)} in total`;
  keyed(
    byId("stages"),
    STAGES.filter((stage) => stage in seconds),
    (stage) => stage,
    (stage) =>
      h(
        "li",
        {},
        h("span", {}, stage),
        h("span", { class: "stage-track" }, h("span", { class: "stage-bar" })),
        h("span", { class: "stage-time" }),
      ),
    (node, stage) => {
      node.querySelector(".stage-time").textContent = milliseconds(seconds[stage]);
      node.querySelector(".stage-bar").style.width = `${((100 * seconds[stage]) / most).toFixed(1)}%`;
    },
  );
}

/** Three of the catalog's own items, novel ones where there are any, short ones first. */
async function showExamples() {
  const novel = await tried(() => api.items({ state: ["novel"], limit: 100 }));
  const page = novel?.items.length ? novel : await tried(() => api.items({ limit: 100 }));
  byId("examples").setAttribute("aria-busy", "false");
  learnTags(page?.items ?? []);
  const rank = (item) => ([...item.text].length > 70 ? 1 : 0);
  const chosen = [...(page?.items ?? [])].sort((a, b) => rank(a) - rank(b)).slice(0, 3);
  known = new Map(chosen.map((item) => [item.text, item]));
  byId("examples").parentElement.hidden = !chosen.length;
  byId("examples").replaceChildren(
    ...chosen.map((item) =>
      h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            class: "example",
            title: item.text,
            on: { click: () => lookAtItem(item) },
          },
          shortened(item.text, 44),
        ),
      ),
    ),
  );
  return chosen;
}

/** An item of the catalog as if it were new: one that informs others must not inform itself. */
const lookAtItem = (item) => lookAt(item.text, item.state === "observed" ? [item.id] : [], []);

function lookAt(text, without, queries) {
  Object.assign(asked, { text, without, revealed: queries });
  field.value = text;
  revealed.set(queries);
  soon.now();
}

/** Shows what the address says. */
export async function openInspect(route) {
  if (route.has("text")) return lookAt(route.one("text"), route.all("without"), route.all("revealed"));
  if (asked.text === null) {
    busy(true);
    const [first] = await examples;
    if (asked.text !== null) return undefined; // somebody was quicker
    if (first) return lookAtItem(first);
    asked.text = "";
  }
  return lookAt(asked.text, asked.without, asked.revealed);
}

export const inspectAddress = () => asked;

/** `changed` is called when the catalog was. */
export function startInspect(changed) {
  byId("view-new").classList.add("first");
  map = mapIn(byId("map"), byId("map-legend"));
  revealed = chipBox(byId("revealed-list"), byId("revealed"), "first click", (queries) => {
    asked.revealed = queries;
    soon.now();
  });
  field.addEventListener("input", () => {
    asked.text = field.value;
    soon();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      soon.now();
    }
  });
  byId("compose").addEventListener("submit", (event) => event.preventDefault());
  byId("all-on").addEventListener("click", () => {
    asked.without = [];
    byId("neighbours").querySelector(".switch")?.focus();
    soon.now();
  });
  startAdding(changed);
  examples = showExamples();
}
