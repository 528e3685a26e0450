// Adding the item that was looked at: an id is proposed, tags may follow, and the way to the search view is shown.

import { api } from "./api.js";
import { chipBox } from "./chips.js";
import { byId, h, icon } from "./dom.js";
import { calm, tried } from "./notices.js";
import { address } from "./route.js";

let text = "";
let own = false;

/** An id from the text: its first words and a short sum of all of it, so that the same text proposes the same id. */
export function proposedId(from) {
  const words =
    from
      .toLowerCase()
      .normalize("NFC")
      .match(/[\p{L}\p{M}\p{N}]+/gu) ?? [];
  let sum = 0x811c9dc5;
  for (const letter of from) sum = Math.imul(sum ^ letter.codePointAt(0), 0x01000193) >>> 0;
  const name = [...words.slice(0, 5).join("-")].slice(0, 40).join("");
  return [name, sum.toString(36).padStart(4, "0").slice(-4)].filter(Boolean).join("-");
}

/** Follows the text that is looked at; `known` is its id where the catalog has it. An id that somebody typed stays. */
export function offer(now, known) {
  if (now === text) return;
  text = now;
  byId("added").replaceChildren();
  if (!own) byId("add-id").value = text ? (known ?? proposedId(text)) : "";
  byId("add-button").disabled = !text;
}

/** `added` is called after an item went in. */
export function startAdding(added) {
  const tags = chipBox(byId("add-tags"), byId("add-tag"), "tag", () => {});
  byId("add-id").addEventListener("input", () => {
    own = byId("add-id").value !== "";
  });
  byId("add").addEventListener("submit", async (event) => {
    event.preventDefault();
    tags.take();
    const item = { id: byId("add-id").value.trim(), text, tags: tags.get() };
    if (!item.id || !text) return;
    const button = byId("add-button");
    button.disabled = true;
    const answer = await tried(() => api.add([item]));
    button.disabled = false;
    if (!answer) return;
    calm();
    byId("added").replaceChildren(
      icon("check"),
      h("span", {}, answer.added ? "Added as " : "Already there as ", h("code", {}, item.id), ". "),
      h(
        "a",
        { href: address("search", { q: item.text, item: item.id }), id: "see-added" },
        "See it in the search view",
      ),
    );
    own = false;
    added();
  });
}
