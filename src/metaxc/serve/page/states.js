// The life of an item: novel, clicked, observed, as a badge and as a stepper.

import { count, h, svg } from "./dom.js";

export const STATES = ["novel", "clicked", "observed"];

/** A ring that fills with the item's life, so that the state is told by shape too. */
function moon(state) {
  const mark = svg(
    "svg",
    { class: "moon", viewBox: "0 0 12 12", "aria-hidden": "true" },
    svg("circle", { cx: 6, cy: 6, r: 4.5, class: state === "observed" ? "full" : "ring" }),
  );
  if (state === "clicked") mark.append(svg("path", { d: "M6 1.5a4.5 4.5 0 0 0 0 9z", class: "full" }));
  return mark;
}

export const badge = (state) => h("span", { class: `badge is-${state}` }, moon(state), state);

/** novel -> clicked (n of m) -> observed, the present one marked. */
export function stepper(item, observeAfter) {
  const present = STATES.indexOf(item.state);
  const details = {
    novel: "text only",
    clicked: item.trained
      ? "skipped"
      : `${Math.min(item.clicks, observeAfter)} of ${count(observeAfter, "click")}`,
    observed: item.trained ? "by the model's training" : "informs other items",
  };
  return h(
    "ol",
    { class: "stepper", "aria-label": "Lifecycle of the item" },
    STATES.map((state, place) => {
      const when = place < present ? "past" : place === present ? "present" : "future";
      const step = h(
        "li",
        { class: `step ${when}`, "aria-current": place === present ? "step" : null, "data-state": state },
        h("span", { class: "step-mark" }, moon(state)),
        h("span", { class: "step-name" }, state),
        h("span", { class: "step-detail" }, details[state]),
      );
      if (state === "clicked") {
        const part = present > 1 ? 1 : present === 1 ? item.clicks / observeAfter : 0;
        step.style.setProperty("--progress", Math.min(1, part).toFixed(3));
      }
      return step;
    }),
  );
}
