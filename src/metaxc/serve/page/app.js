// The frame: tabs, header, theme, keys. What happens in a view is the view's own.

import { api } from "./api.js";
import { byId, count, grouped, h } from "./dom.js";
import { learnExposure } from "./exposure.js";
import { inspectAddress, openInspect, startInspect } from "./inspect.js";
import { calm, tried } from "./notices.js";
import { go, readRoute } from "./route.js";
import { focusSearch, openSearch, outdate, searchAddress, startSearch } from "./search.js";
import { STATES, badge } from "./states.js";

const VIEWS = {
  new: { tab: byId("tab-new"), panel: byId("view-new"), open: openInspect, values: inspectAddress },
  search: { tab: byId("tab-search"), panel: byId("view-search"), open: openSearch, values: searchAddress },
};

function follow() {
  const route = readRoute();
  for (const [name, { tab, panel }] of Object.entries(VIEWS)) {
    const here = name === route.view;
    tab.setAttribute("aria-selected", String(here));
    tab.tabIndex = here ? 0 : -1;
    panel.hidden = !here;
  }
  VIEWS[route.view].open(route);
}

const turnTo = (name) => go(name, VIEWS[name].values());

function startTabs() {
  const names = Object.keys(VIEWS);
  names.forEach((name, place) => {
    const { tab } = VIEWS[name];
    tab.addEventListener("click", () => turnTo(name));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: names.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const other = names[(to + names.length) % names.length];
      VIEWS[other].tab.focus();
      turnTo(other);
    });
  });
}

/** "/" goes to the search box from wherever nothing is being typed. */
function startKeys() {
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (byId("view-search").hidden) {
      addEventListener("hashchange", focusSearch, { once: true });
      turnTo("search");
    } else focusSearch();
  });
}

function startTheme() {
  const button = byId("theme");
  const order = ["system", "light", "dark"];
  const show = () => {
    const now = document.documentElement.dataset.theme ?? "system";
    button.textContent = `theme: ${now}`;
    return now;
  };
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(show()) + 1) % order.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("metaxc-theme", next);
    } catch {
      // Then it lasts as long as the page.
    }
    show();
  });
  show();
}

/** Why the model's items had no clicks; the command line tells the same numbers. */
function whyNovel({ held_out: heldOut = 0, without_clicks: without = 0 }) {
  const reasons = [
    ...(heldOut ? [`${grouped(heldOut)} held out for the test`] : []),
    ...(without ? [`${grouped(without)} without training clicks`] : []),
  ];
  return reasons.length ? `When the model was trained: ${reasons.join(", ")}` : null;
}

async function showAbout() {
  const about = await tried(() => api.about());
  if (!about) return;
  byId("counts").setAttribute("aria-busy", "false");
  byId("counts").replaceChildren(
    ...STATES.filter((state) => about.items[state]).map((state) =>
      h(
        "li",
        { "data-state": state, title: state === "novel" ? whyNovel(about.novel_items) : null },
        h("b", {}, grouped(about.items[state])),
        " ",
        badge(state),
      ),
    ),
  );
  byId("about").hidden = false;
  byId("index-kind").textContent = `${about.index} index`;
  byId("index-tip").textContent = about.index_reason;
  byId("foot").textContent = [
    `model ${about.model.slice(0, 12)}`,
    `encoder ${about.encoder}`,
    `${about.dim} dimensions`,
    `${count(about.base, "observed item")} used as neighbours`,
    ...(about.novel_items.without_clicks ? [whyNovel(about.novel_items).replace("When", "novel when")] : []),
    ...(about.clicks ? [count(about.clicks, "live click")] : []),
    `observed after ${count(about.observe_after, "click")}`,
    ...(about.read_only ? ["read only"] : []),
  ].join(" · ");
  document.body.classList.toggle("read-only", about.read_only);
  learnExposure(about);
}

startTheme();
startTabs();
startKeys();
startInspect(() => {
  outdate();
  showAbout();
});
startSearch(showAbout);
byId("banner-close").addEventListener("click", calm);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is the views'
  byId("main").focus();
});
addEventListener("hashchange", follow);
showAbout();
follow();
