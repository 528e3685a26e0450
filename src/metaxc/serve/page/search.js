// The second view: search with filters, or leaf through the catalog; a click on a result counts at once.

import { STALE, api, lane } from "./api.js";
import { chipBox, learnTags } from "./chips.js";
import { bones, byId, count, debounced, decimal, h, icon, keyed, milliseconds, spoken } from "./dom.js";
import { readExposure, setExposure, startExposure } from "./exposure.js";
import { factsInBrief } from "./facts.js";
import { calm, complain, say } from "./notices.js";
import { closePanel, forget, openPanel, placePanel, record, startPanel } from "./panel.js";
import { address, note } from "./route.js";
import { STATES, badge } from "./states.js";

const PAUSE = 250;
const LEAF = 20;

const asked = { q: "", k: 10, state: [], tag: [], exposure: null, item: null };
const request = lane();
const list = byId("results");
let tags = null;
let answered = null;
let next = null;
let spokenFor = false; // what made the search run again has said its own sentence

export const searchAddress = () => ({
  q: asked.q || null,
  k: asked.k === 10 ? null : asked.k,
  state: asked.state,
  tag: asked.tag,
  exposure: asked.exposure,
  item: asked.item,
});

const what = () => JSON.stringify([asked.q.trim(), asked.k, asked.state, asked.tag, asked.exposure]);

async function run() {
  note("search", searchAddress());
  const query = asked.q.trim();
  if (!list.children.length) list.replaceChildren(...bones(6));
  list.setAttribute("aria-busy", "true");
  answered = what();
  try {
    const found = await request((signal) => (query ? searched(query, signal) : leafed(null, signal)));
    if (found === STALE) return;
    calm();
    next = found.next;
    show(found, query);
  } catch (error) {
    answered = null;
    list.querySelectorAll(".bone").forEach((bone) => bone.remove());
    complain(error);
  }
  list.setAttribute("aria-busy", "false");
}

const soon = debounced(run, PAUSE);

async function searched(query, signal) {
  const { k, tag, state, exposure } = asked;
  const answer = await api.search({ queries: [query], k, tags: tag, states: state, exposure }, signal);
  const { encode, search } = answer.seconds;
  return {
    hits: answer.answers[0].hits,
    next: null,
    time: `encode ${milliseconds(encode)}, search ${milliseconds(search)}`,
  };
}

async function leafed(after, signal) {
  const page = await api.items({ state: asked.state, tag: asked.tag, after, limit: LEAF }, signal);
  return { hits: page.items, next: page.next, time: "" };
}

async function leafOn() {
  try {
    const found = await request((signal) => leafed(next, signal));
    if (found === STALE) return;
    next = found.next;
    show({ ...found, hits: [...shown, ...found.hits] }, "");
  } catch (error) {
    complain(error);
  }
}

let shown = [];

function show({ hits, time }, query) {
  shown = hits;
  learnTags(hits);
  byId("results-title").textContent = query ? "Results" : "Items of the catalog";
  byId("search-time").textContent = time;
  byId("results-more").hidden = next === null;
  list.classList.toggle("unscored", !query);
  const best = Math.max(1e-9, ...hits.map((hit) => hit.score ?? 0));
  let rank = 0;
  keyed(
    list,
    hits,
    (hit) => hit.id,
    row,
    (node, hit) => update(node, hit, (rank += 1), best),
  );
  if (!hits.length) {
    const filtered = asked.state.length || asked.tag.length;
    list.append(
      h(
        "li",
        { class: "empty" },
        filtered
          ? "No item matches these filters. Remove one of them."
          : "The catalog is empty. Add an item in the first view.",
      ),
    );
  }
  mark();
  if (!spokenFor)
    say(query ? `${count(hits.length, "result")} for ${query}` : `${count(hits.length, "item")} of the catalog`);
  spokenFor = false;
}

function row({ id, text }) {
  return h(
    "li",
    { class: "result" },
    h("span", { class: "rank" }),
    h(
      "span",
      { class: "result-name" },
      h("a", { class: "result-text", dir: "auto", title: text }, text),
      h(
        "span",
        { class: "result-more" },
        h("code", { class: "id" }, id),
        h("span", { class: "tags" }),
        h("span", { class: "facts-brief" }),
      ),
    ),
    h("span", { class: "result-state" }),
    h(
      "span",
      { class: "score" },
      spoken("score "),
      h("span", { class: "score-number" }),
      h("span", { class: "meter-track" }, h("span", { class: "meter-bar" })),
    ),
    h(
      "button",
      {
        type: "button",
        class: "quiet click writes",
        "aria-label": `Click: record one for ${text}`,
        on: { click: (event) => clicked(id, event.currentTarget) },
      },
      icon("click"),
      "Click",
    ),
  );
}

function update(node, hit, rank, best) {
  node.querySelector(".rank").textContent = rank;
  node.querySelector(".result-text").textContent = hit.text;
  node.querySelector(".result-text").href = address("search", { ...searchAddress(), item: hit.id });
  node.querySelector(".tags").replaceChildren(...hit.tags.map((tag) => h("span", { class: "tag" }, tag)));
  node.querySelector(".facts-brief").replaceChildren(...factsInBrief(hit.fields));
  node.querySelector(".result-state").replaceChildren(badge(hit.state));
  node.dataset.state = hit.state;
  node.querySelector(".score-number").textContent = hit.score === undefined ? "" : decimal(hit.score, 3);
  node.querySelector(".meter-bar").style.width = `${Math.max(0, (100 * (hit.score ?? 0)) / best).toFixed(1)}%`;
}

const selectedRow = () => [...list.children].find((node) => node.dataset.key === asked.item) ?? null;

function mark() {
  for (const node of list.children) {
    const selected = node.dataset.key !== undefined && node.dataset.key === asked.item;
    node.classList.toggle("selected", selected);
    if (selected) node.querySelector(".result-text").setAttribute("aria-current", "true");
    else node.querySelector(".result-text")?.removeAttribute("aria-current");
  }
  placePanel(selectedRow());
}

/** A click of the present query; the search runs again afterwards, since the item has moved. */
async function clicked(id, button) {
  const query = asked.q.trim();
  if (!query) return;
  button.disabled = true;
  asked.item = id;
  mark();
  await record(id, query);
  button.disabled = false;
  button.focus({ preventScroll: true });
}

/** Shows what the address says. */
export function openSearch(route) {
  const states = route.all("state").filter((state) => STATES.includes(state));
  const k = Math.min(1000, Math.max(1, Math.trunc(Number(route.one("k"))) || 10));
  Object.assign(asked, {
    q: route.one("q") ?? "",
    k,
    state: states,
    tag: route.all("tag"),
    exposure: readExposure(route.one("exposure")),
    item: route.one("item"),
  });
  byId("query").value = asked.q;
  if (![...byId("k").options].some((option) => option.value === String(k)))
    byId("k").append(h("option", {}, String(k)));
  byId("k").value = String(k);
  tags.set(asked.tag);
  setExposure(asked.exposure);
  for (const toggle of byId("state-filters").children) {
    toggle.setAttribute("aria-pressed", String(asked.state.includes(toggle.dataset.state)));
  }
  if (answered !== what()) soon.now();
  else note("search", searchAddress());
  if (asked.item === null) closePanel();
  else openPanel(asked.item);
  mark();
}

/** The catalog has changed elsewhere: what is shown is old. */
export const outdate = () => {
  answered = null;
  forget();
};

export function focusSearch() {
  byId("query").focus();
  byId("query").select();
}

/** `changed` is called when the catalog was. */
export function startSearch(changed) {
  tags = chipBox(byId("tag-filters"), byId("tag-filter"), "tag", (chosen) => {
    asked.tag = chosen;
    soon.now();
  });
  byId("state-filters").append(
    ...STATES.map((state) =>
      h(
        "button",
        { type: "button", class: "toggle", "aria-pressed": "false", "data-state": state, on: { click: toggled } },
        badge(state),
      ),
    ),
  );
  byId("query").addEventListener("input", () => {
    asked.q = byId("query").value;
    soon();
  });
  byId("k").addEventListener("change", () => {
    asked.k = Number(byId("k").value);
    soon.now();
  });
  startExposure((exposure) => {
    asked.exposure = exposure;
    soon();
  });
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    soon.now();
  });
  byId("results-more").addEventListener("click", leafOn);
  startPanel({
    narrow: matchMedia("(max-width: 900px)"),
    moved: () => placePanel(selectedRow()),
    changed: () => {
      changed();
      spokenFor = true;
      soon.now();
    },
    closed: () => {
      const row = selectedRow();
      asked.item = null;
      note("search", searchAddress());
      mark();
      (row?.querySelector(".result-text") ?? byId("query")).focus();
    },
  });
}

function toggled(event) {
  const toggle = event.currentTarget;
  const on = toggle.getAttribute("aria-pressed") !== "true";
  toggle.setAttribute("aria-pressed", String(on));
  asked.state = STATES.filter((state) => (state === toggle.dataset.state ? on : asked.state.includes(state)));
  soon.now();
}
