// The way to the service: JSON in, JSON out, errors as the service words them, a token where one is wanted.

import { byId } from "./dom.js";

const KEY = "metaxc-token";

export class ServiceError extends Error {
  /** `facts` are what, got, expected, fix, as the service answers them. */
  constructor(status, facts) {
    super(facts.what);
    this.status = status;
    this.facts = facts;
  }
}

function kept() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

let token = kept();
let asking = null;

export const hasToken = () => token !== null;

/** Opens the token dialog once, however many requests wait for it. Null when it was closed without a token. */
function askedToken() {
  asking ??= new Promise((resolve) => {
    const dialog = byId("token-dialog");
    const field = byId("token");
    byId("token-refused").hidden = token === null;
    field.value = "";
    dialog.returnValue = "";
    dialog.addEventListener(
      "close",
      () => {
        asking = null;
        resolve(dialog.returnValue === "use" && field.value ? field.value : null);
        field.value = "";
      },
      { once: true },
    );
    dialog.showModal();
    field.focus();
  });
  return asking;
}

async function refusal(response) {
  let facts = {};
  try {
    facts = await response.json();
  } catch {
    // Not every proxy in between answers in JSON.
  }
  const wait = response.headers.get("Retry-After");
  return new ServiceError(response.status, {
    what: facts.what ?? `The service answered ${response.status}`,
    got: facts.got,
    expected: facts.expected,
    fix: facts.fix ?? (wait ? `try again in ${wait} s` : undefined),
  });
}

/** One request. `query` values may be lists, which repeat the name. */
export async function call(method, path, { body, query, signal } = {}) {
  const names = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") names.append(name, one);
  }
  const address = names.size ? `${path}?${names}` : path;
  for (;;) {
    const sent = token;
    const headers = { Accept: "application/json" };
    if (sent !== null) headers.Authorization = `Bearer ${sent}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(address, { method, headers, signal, body: body && JSON.stringify(body) });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServiceError(0, {
        what: "The service does not answer",
        got: `${method} ${path}: no connection`,
        fix: "see whether `metaxc serve` still runs, then try again",
      });
    }
    if (response.ok) return response.json();
    if (response.status !== 401) throw await refusal(response);
    if (sent === token) {
      const given = await askedToken();
      if (given === null) throw await refusal(response);
      token = given;
      try {
        sessionStorage.setItem(KEY, given);
      } catch {
        // Then it lives as long as the page.
      }
    }
  }
}

// An id may hold slashes; as a whole it is one segment of the path.
const item = (id) => `/v1/items/${encodeURIComponent(id)}`;

export const api = {
  about: (signal) => call("GET", "/v1/about", { signal }),
  items: (query, signal) => call("GET", "/v1/items", { query, signal }),
  add: (items) => call("POST", "/v1/items", { body: { items } }),
  remove: (id) => call("DELETE", item(id)),
  click: (id, query) => call("POST", "/v1/clicks", { body: { item: id, query } }),
  undo: (number) => call("DELETE", `/v1/clicks/${number}`),
  search: (body, signal) => call("POST", "/v1/search", { body, signal }),
  explain: (id, signal) => call("GET", "/v1/explain", { query: { item: id }, signal }),
  preview: (body, signal) => call("POST", "/v1/preview", { body, signal }),
};

export const STALE = Symbol("a newer request took this one's place");

/** A lane lets one request live: a newer one aborts it, and its answer, should it still come, is STALE. */
export function lane() {
  let current = null;
  return async (work) => {
    current?.abort();
    const mine = new AbortController();
    current = mine;
    try {
      const answer = await work(mine.signal);
      return mine.signal.aborted ? STALE : answer;
    } catch (error) {
      if (mine.signal.aborted) return STALE;
      throw error;
    }
  };
}
