// The panel of one item: its life, what it is made of, its clicks; what a click changes stands side by side.

import { STALE, api, lane } from "./api.js";
import { compared, listed } from "./compared.js";
import { bones, byId, h, icon } from "./dom.js";
import { factSheet } from "./facts.js";
import { calm, complain, say, tried } from "./notices.js";
import { showShares, weightless } from "./shares.js";
import { badge, stepper } from "./states.js";

const panel = byId("panel");
const body = byId("panel-body");
const request = lane();
let shown = null; // the Explained on the screen
let hooks = null;

/** `narrow` is a media query, `moved`, `changed` and `closed` are called when it, the catalog, the panel change. */
export function startPanel(given) {
  hooks = given;
  hooks.narrow.addEventListener("change", () => hooks.moved());
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || body.hidden) return;
    const confirm = body.querySelector(".confirm");
    if (confirm && !confirm.hidden) askDelete(false);
    else close();
  });
}

/** On a narrow screen the panel opens under its result, on a wide one beside the list. */
export function placePanel(row) {
  const place = hooks.narrow.matches && row && !body.hidden ? row : byId("aside");
  if (panel.parentElement === place) return;
  const focused = panel.contains(document.activeElement) ? document.activeElement : null;
  place.append(panel);
  focused?.focus({ preventScroll: true });
}

function visible(is) {
  byId("panel-empty").hidden = is;
  body.hidden = !is;
}

export const forget = () => {
  shown = null;
};

export function closePanel() {
  request(async () => null);
  shown = null;
  visible(false);
  body.replaceChildren();
}

function close() {
  closePanel();
  hooks.closed();
}

/** Shows an item, asking the service for it. */
export async function openPanel(id) {
  if (shown?.item.id === id) return;
  visible(true);
  panel.setAttribute("aria-busy", "true");
  if (!shown) body.replaceChildren(h("ul", { class: "bones" }, bones(5)));
  try {
    const explained = await request((signal) => api.explain(id, signal));
    if (explained === STALE) return;
    show(explained);
  } catch (error) {
    shown = null;
    body.replaceChildren(h("p", { class: "empty" }, "This item cannot be shown. It may have been deleted."));
    complain(error);
  }
  panel.setAttribute("aria-busy", "false");
}

/** Records a click and shows the item before and after it. */
export async function record(id, query) {
  visible(true);
  panel.setAttribute("aria-busy", "true");
  const done = await tried(async () => {
    const before = shown?.item.id === id ? shown : await api.explain(id);
    const click = await api.click(id, query);
    const after = await api.explain(id);
    calm();
    show(after, { before, line: `Click for “${query}” recorded.`, number: click.number });
    say(`Click recorded. The item is now ${after.item.state}.`);
    return true;
  });
  panel.setAttribute("aria-busy", "false");
  if (done) hooks.changed();
}

async function undo(number) {
  const before = shown;
  const done = await tried(async () => {
    await api.undo(number);
    const after = await api.explain(before.item.id);
    calm();
    show(after, { before, line: "Click undone.", number: null });
    say(`Click undone. The item is now ${after.item.state}.`);
    return true;
  });
  if (!done) return;
  panel.focus({ preventScroll: true });
  hooks.changed();
}

function show(explained, step = null) {
  shown = explained;
  visible(true);
  hooks.moved();
  const { item, explanation } = explained;
  const bar = h("div", { class: "stacked", role: "img" });
  const legend = h("ul", { class: "legend" });
  showShares(bar, legend, explanation, item.state);
  body.replaceChildren(
    h(
      "div",
      { class: "panel-head" },
      h(
        "div",
        {},
        h("h2", { class: "panel-text", dir: "auto" }, item.text),
        h(
          "p",
          { class: "panel-more" },
          badge(item.state),
          h("code", { class: "id" }, item.id),
          item.tags.map((tag) => h("span", { class: "tag" }, tag)),
        ),
      ),
      h(
        "button",
        { type: "button", class: "quiet square", "aria-label": "Close the explanation", on: { click: close } },
        icon("close"),
      ),
    ),
    stepper(item, explained.observe_after),
    step
      ? h(
          "p",
          { class: "recorded" },
          icon("check"),
          h("span", {}, step.line),
          step.number === null
            ? null
            : h(
                "button",
                { type: "button", class: "quiet undo writes", on: { click: () => undo(step.number) } },
                "Undo",
              ),
        )
      : "",
    explained.current
      ? ""
      : h(
          "p",
          { class: "note stale" },
          "Other items have become observed since this vector was computed; computed now, it would be slightly different.",
        ),
    ...factSheet(item.fields),
    h("h3", {}, "Made of"),
    bar,
    legend,
    weightless(explanation.neighbours) ? h("p", { class: "note" }, "On this data neighbours have no weight.") : "",
    ...(step
      ? compared(step.before.explanation.neighbours, explanation.neighbours)
      : listed(explanation.neighbours)),
    ...clicked(explained.clicks, item.clicks),
    deletion(item),
  );
}

const clock = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });

function clicked(clicks, total) {
  if (!clicks.length) return [];
  return [
    h("h3", {}, total > clicks.length ? `Its last ${clicks.length} clicks` : "Its clicks"),
    h(
      "ul",
      { class: "clicks" },
      clicks.map((click) =>
        h(
          "li",
          {},
          h("span", { class: "click-query", dir: "auto" }, click.query),
          h(
            "time",
            { datetime: new Date(1000 * click.at).toISOString() },
            clock.format(new Date(1000 * click.at)),
          ),
          h(
            "button",
            {
              type: "button",
              class: "quiet writes",
              "aria-label": `Undo the click of ${click.query}`,
              on: { click: () => undo(click.number) },
            },
            "Undo",
          ),
        ),
      ),
    ),
  ];
}

function deletion(item) {
  const remove = async () => {
    const answer = await tried(() => api.remove(item.id));
    if (!answer) return;
    calm();
    close();
    byId("query").focus(); // its result is about to go
    say(`Deleted ${item.id}`);
    hooks.changed();
  };
  return h(
    "div",
    { class: "deletion writes" },
    h(
      "button",
      { type: "button", class: "quiet danger", id: "delete", on: { click: () => askDelete(true) } },
      "Delete item",
    ),
    h(
      "div",
      { class: "confirm", role: "group", "aria-label": "Confirm", hidden: true },
      h("p", {}, "Delete it with its clicks? This cannot be undone."),
      h("button", { type: "button", class: "strong danger", id: "delete-yes", on: { click: remove } }, "Delete"),
      h("button", { type: "button", class: "quiet", on: { click: () => askDelete(false) } }, "Keep"),
    ),
  );
}

function askDelete(asks) {
  const confirm = body.querySelector(".confirm");
  const start = byId("delete");
  confirm.hidden = !asks;
  start.hidden = asks;
  (asks ? byId("delete-yes") : start).focus();
}
