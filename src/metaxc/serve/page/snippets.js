// The call on the screen, as curl and as Python, ready to be copied.

import { hasToken } from "./api.js";
import { byId } from "./dom.js";
import { say } from "./notices.js";

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

// JSON's strings are Python's too, but for letters beyond the 16-bit plane, which JSON.stringify leaves as they are.
const python = (value) => JSON.stringify(value).replaceAll('","', '", "');

export function asCurl(origin, body, token) {
  return [
    `curl -s ${origin}/v1/preview`,
    ...(token ? [`-H "Authorization: Bearer $METAXC_TOKEN"`] : []),
    `-H 'Content-Type: application/json'`,
    `-d ${shell(JSON.stringify(body))}`,
  ].join(" \\\n  ");
}

export function asPython(origin, { text, without, revealed }, token) {
  const given = [
    python(text),
    ...(without.length ? [`without=${python(without)}`] : []),
    ...(revealed.length ? [`revealed=${python(revealed)}`] : []),
  ];
  return [
    ...(token ? ["import os"] : []),
    "from metaxc.serve.client import Client",
    "",
    token
      ? `client = Client(${python(origin)}, token=os.environ["METAXC_TOKEN"])`
      : `client = Client(${python(origin)})`,
    given.length > 1
      ? `preview = client.preview(\n    ${given.join(",\n    ")},\n)`
      : `preview = client.preview(${given[0]})`,
    "print(preview.explanation.neighbours)",
  ].join("\n");
}

export function showCall(body) {
  byId("as-curl").textContent = asCurl(location.origin, body, hasToken());
  byId("as-python").textContent = asPython(location.origin, body, hasToken());
}

/** The clipboard is closed to pages on plain HTTP (other than loopback); selecting the text is left then. */
async function copy(button) {
  const source = byId(button.dataset.copies);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
    say("Copied");
  } catch {
    getSelection().selectAllChildren(source);
    button.textContent = "Selected";
    say("Selected, copy it with the keyboard");
  }
  setTimeout(() => {
    button.textContent = "Copy";
  }, 1600);
}

for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => copy(button));
