// The dial "Exposure of new items": a slider along the curve that training has measured, and what each place on it
// costs and brings. A model without a curve has a number field, without prices.

import { byId, decimal, h, percent, svg } from "./dom.js";

const WIDTH = 232;
const HEIGHT = 128;
const EDGE = { left: 26, right: 10, top: 20, bottom: 26 };
const STEPS = 100; // of the slider, from end to end
const MOST = 100; // as the service limits it

let curve = []; // points by exposure, ascending
let standard = 0; // the exposure chosen in training
let value = null; // null: the standard
let turned = () => {};

/** The mean of the overall figures, by which a price is told in one number. */
const overall = (point) => (point["P@1"] + point["R@10"]) / 2;
const novel = (point) => point["novel R@10"];
const current = () => value ?? standard;
const signed = (number) => (number > 0 ? `+${decimal(number, 1)}` : decimal(number, 1));

/** The figures at an exposure, interpolated between the measured points. */
function at(exposure) {
  const after = curve.findIndex((point) => point.exposure >= exposure);
  if (after <= 0) return after === 0 ? curve[0] : curve.at(-1);
  const [low, high] = [curve[after - 1], curve[after]];
  const part = (exposure - low.exposure) / (high.exposure - low.exposure);
  const between = (name) => low[name] + part * (high[name] - low[name]);
  return { exposure, "P@1": between("P@1"), "R@10": between("R@10"), "novel R@10": between("novel R@10") };
}

const range = () => [curve[0].exposure, curve.at(-1).exposure];

/** The measured points lie at equal distances on the slider: training measures more of them where more happens. */
function toStep(exposure) {
  const [low, high] = range();
  const held = Math.min(high, Math.max(low, exposure));
  const after = Math.max(
    1,
    curve.findIndex((point) => point.exposure >= held),
  );
  const [before, next] = [curve[after - 1].exposure, curve[after].exposure];
  return Math.round((STEPS * (after - 1 + (held - before) / (next - before))) / (curve.length - 1));
}

function fromStep(step) {
  if (step === toStep(standard)) return standard; // the mark is exactly where the model stands
  const place = (step * (curve.length - 1)) / STEPS;
  const before = Math.min(curve.length - 2, Math.floor(place));
  const [low, high] = [curve[before].exposure, curve[before + 1].exposure];
  const rounded = Number((low + (place - before) * (high - low)).toPrecision(3));
  return Math.min(high, Math.max(low, rounded)); // rounding must not leave what was measured
}

/** Puts numbers on an axis of so many pixels, with some air at both ends. */
function scale(numbers, from, to) {
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  const air = Math.max(0.5, (high - low) * 0.08);
  return (number) => from + ((to - from) * (number - low + air)) / (high - low + 2 * air);
}

/** The curve: new items to the right, all items upwards, the present place as a dot, the standard as a ring. */
function draw(here) {
  const x = scale(curve.map(novel), EDGE.left, WIDTH - EDGE.right);
  const y = scale(curve.map(overall), HEIGHT - EDGE.bottom, EDGE.top);
  const place = (point) => `${x(novel(point)).toFixed(1)},${y(overall(point)).toFixed(1)}`;
  const dot = (point, kind, r) =>
    svg("circle", { class: kind, cx: x(novel(point)).toFixed(1), cy: y(overall(point)).toFixed(1), r });
  const base = HEIGHT - EDGE.bottom;
  const number = (text, at) => svg("text", { class: "dial-number", ...at }, text);
  const ends = (figures) => [Math.min(...figures), Math.max(...figures)];
  const [left, right] = ends(curve.map(novel));
  const [bottom, top] = ends(curve.map(overall));
  byId("dial-curve").replaceChildren(
    svg("path", { class: "dial-axes", d: `M${EDGE.left} ${EDGE.top}V${base}H${WIDTH - EDGE.right}` }),
    svg("polyline", { class: "dial-line", points: curve.map(place).join(" ") }),
    ...curve.map((point) => dot(point, "dial-measured", 2)),
    dot(at(standard), "dial-standard", 5.5),
    ...(here ? [dot(here, "dial-here", 4)] : []),
    ...(right > left ? [number(decimal(left, 0), { x: x(left), y: base + 11, "text-anchor": "middle" })] : []),
    number(decimal(right, 0), { x: x(right), y: base + 11, "text-anchor": "middle" }),
    ...(top > bottom ? [number(decimal(bottom, 0), { x: EDGE.left - 4, y: y(bottom) + 3, "text-anchor": "end" })] : []),
    number(decimal(top, 0), { x: EDGE.left - 4, y: y(top) + 3, "text-anchor": "end" }),
    number("new items, R@10, %", { x: WIDTH - EDGE.right, y: HEIGHT - 3, "text-anchor": "end" }),
    number("all items, mean of P@1 and R@10, %", { x: 0, y: 9 }),
  );
}

/** A figure, and how far it is from that of the model's own exposure. */
function figure(name, number, difference) {
  const change = difference > 0 ? "is-gained" : difference < 0 ? "is-lost" : "";
  const far = difference ? signed(difference) : "±0.0";
  return h(
    "div",
    { class: "figure" },
    h("dt", {}, name),
    h("dd", {}, h("b", {}, percent(number)), h("span", { class: `difference ${change}` }, far)),
  );
}

/** Differences are told as they are printed: what rounds to nothing is nothing. */
const difference = (here, there) => Number((here - there).toFixed(1));

function show() {
  const exposure = current();
  const isStandard = value === null || value === standard;
  byId("exposure-value").textContent = decimal(exposure, 2);
  byId("exposure-standard").hidden = isStandard;
  byId("exposure-number").value = String(exposure);
  if (!curve.length) return;
  const slider = byId("exposure");
  slider.value = String(toStep(exposure));
  const [low, high] = range();
  if (exposure < low || exposure > high) {
    slider.setAttribute("aria-valuetext", `${decimal(exposure, 2)}, not measured`);
    byId("exposure-prices").replaceChildren(
      h("div", { class: "unmeasured" }, h("dt", {}, `Measured from ${decimal(low, 2)} to ${decimal(high, 2)} only.`)),
    );
    draw(null);
    return;
  }
  const here = at(exposure);
  const there = at(standard);
  const prices = [
    ["New items, R@10", novel(here), difference(novel(here), novel(there))],
    ["All items, P@1", here["P@1"], difference(here["P@1"], there["P@1"])],
    ["All items, R@10", here["R@10"], difference(here["R@10"], there["R@10"])],
  ];
  slider.setAttribute(
    "aria-valuetext",
    `${decimal(exposure, 2)}${isStandard ? ", the model's own" : ""}: ` +
      prices.map(([name, number]) => `${name} ${percent(number)}`).join(", "),
  );
  byId("exposure-prices").replaceChildren(...prices.map((price) => figure(...price)));
  draw(here);
}

function turn(exposure) {
  value = exposure === standard ? null : exposure;
  show();
  turned(value);
}

/** Takes in what the service says of its model. */
export function learnExposure(about) {
  standard = about.exposure;
  curve = about.exposure_curve
    .filter((point) => ["exposure", "P@1", "R@10", "novel R@10"].every((name) => Number.isFinite(point[name])))
    .sort((one, other) => one.exposure - other.exposure);
  curve = curve.filter((point, place) => place === 0 || point.exposure > curve[place - 1].exposure);
  if (curve.length < 2) curve = [];
  const priced = curve.length > 0;
  byId("exposure-dial").hidden = !priced;
  byId("exposure-number").hidden = priced;
  byId("exposure-origin").hidden = !priced;
  byId("exposure-name").htmlFor = priced ? "exposure" : "exposure-number";
  if (priced) byId("exposure-mark").style.setProperty("--place", (toStep(standard) / STEPS).toFixed(3));
  byId("exposure-box").hidden = false;
  show();
}

/** Shows an exposure that the address names; null for the model's own. */
export function setExposure(exposure) {
  value = exposure;
  show();
}

/** An exposure from the address: a number that the service takes, or null. */
export function readExposure(text) {
  const number = text === null || text.trim() === "" ? Number.NaN : Number(text);
  return Number.isFinite(number) ? Math.min(MOST, Math.max(-MOST, number)) : null;
}

/** `changed` is called with the new exposure, null for the model's own. */
export function startExposure(changed) {
  turned = changed;
  byId("exposure").addEventListener("input", () => turn(fromStep(Number(byId("exposure").value))));
  byId("exposure-number").addEventListener("change", (event) => turn(readExposure(event.target.value) ?? standard));
  byId("exposure-standard").addEventListener("click", () => {
    turn(standard);
    byId(curve.length ? "exposure" : "exposure-number").focus();
  });
}
