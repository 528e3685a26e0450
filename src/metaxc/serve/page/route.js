// What is on the screen stands in the address: #new?text=… or #search?q=…&item=…, so that it can be passed on.

/** The view and its values; each value is a list. */
export function readRoute() {
  const [view, rest = ""] = location.hash.slice(1).split(/\?(.*)/s);
  const names = new URLSearchParams(rest);
  const all = (name) => names.getAll(name);
  return {
    view: view === "search" ? "search" : "new",
    has: (name) => names.has(name),
    all,
    one: (name) => names.get(name),
  };
}

export function address(view, values = {}) {
  const names = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined) names.append(name, one);
  }
  return names.size ? `#${view}?${names}` : `#${view}`;
}

/** Notes a view's state without a step in the history; a view that is not on the screen has no say. */
export function note(view, values) {
  if (readRoute().view === view) history.replaceState(null, "", address(view, values));
}

/** Goes there, with a step in the history and the page following it. */
export function go(view, values) {
  location.hash = address(view, values);
}
