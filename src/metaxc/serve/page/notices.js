// What the page has to say: a banner for what went wrong, a line for what was done.

import { byId, h } from "./dom.js";

const WORDS = { got: "given", expected: "expected", fix: "what to do" };

/** Shows an error in the service's own words: what failed, what was given, what was expected, what to do. */
export function complain(error) {
  const facts = error.facts ?? { what: "Internal error of the page", got: String(error) };
  const details = Object.entries(WORDS)
    .filter(([name]) => facts[name])
    .map(([name, word]) => h("div", {}, h("dt", {}, word), h("dd", {}, String(facts[name]))));
  byId("banner-text").replaceChildren(h("p", {}, facts.what), details.length ? h("dl", {}, details) : "");
  byId("banner").hidden = false;
}

export const calm = () => {
  byId("banner").hidden = true;
};

/** Runs work and shows what goes wrong; the answer is undefined then. */
export async function tried(work) {
  try {
    return await work();
  } catch (error) {
    complain(error);
    return undefined;
  }
}

/** Says a sentence to screen readers. */
export const say = (sentence) => {
  byId("live").textContent = sentence;
};
