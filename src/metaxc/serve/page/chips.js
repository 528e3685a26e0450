// A box that collects short texts: Enter takes one in, Backspace in the empty box takes the last one out.

import { byId, h, icon } from "./dom.js";

/**
 * Args:
 *   list: The element that shows the chips.
 *   field: The input.
 *   word: What one chip is called, for screen readers.
 *   changed: Called with all chips after a change by the user.
 */
export function chipBox(list, field, word, changed) {
  let chips = [];

  const show = () => {
    list.hidden = chips.length === 0;
    list.replaceChildren(
      ...chips.map((text) =>
        h(
          "li",
          { class: "chip" },
          h("span", { class: "chip-text" }, text),
          h(
            "button",
            {
              type: "button",
              class: "chip-out",
              "aria-label": `Remove the ${word} ${text}`,
              on: { click: () => drop(text) },
            },
            icon("close"),
          ),
        ),
      ),
    );
  };
  const set = (texts) => {
    chips = [...new Set(texts)];
    show();
  };
  const drop = (text) => {
    set(chips.filter((chip) => chip !== text));
    field.focus();
    changed(chips);
  };
  const take = () => {
    const text = field.value.trim();
    field.value = "";
    if (!text || chips.includes(text)) return false;
    set([...chips, text]);
    changed(chips);
    return true;
  };

  field.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && field.value.trim()) {
      event.preventDefault();
      take();
    } else if (event.key === "Backspace" && !field.value && chips.length) {
      drop(chips.at(-1));
    }
  });
  return { set, take, get: () => [...chips] };
}

const known = new Set();

/** Proposes the tags of these items wherever a tag can be typed. */
export function learnTags(items) {
  for (const item of items) for (const tag of item.tags) known.add(tag);
  byId("known-tags").replaceChildren(
    ...[...known]
      .sort()
      .slice(0, 200)
      .map((tag) => h("option", { value: tag })),
  );
}
