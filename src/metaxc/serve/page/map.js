// The small map: two directions of the vector space, the item's text, its meta-classifier and the way between.

import { h, shortened, svg } from "./dom.js";

const MARGIN = 28;
const LETTERS = 26;
const KINDS = {
  text: "own text",
  meta: "meta-classifier",
  neighbour: "neighbour",
  query: "query",
};
const SHAPES = {
  text: () => svg("circle", { r: 6 }),
  meta: () => svg("path", { d: "M0-8.5 8.5 0 0 8.5-8.5 0z" }),
  neighbour: () => svg("circle", { r: 4 }),
  query: () => svg("path", { d: "M-3.2-3.2 3.2 3.2M3.2-3.2-3.2 3.2" }),
};

const pen = document.createElement("canvas").getContext("2d");

function widthOf(text) {
  pen.font = "11px sans-serif";
  return pen.measureText(text).width * 1.06;
}

const overlaps = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

/** Puts points into a box of width x height, one scale for both directions, so that distances can be compared. */
export function fitted(points, width, height) {
  const xs = points.map((point) => point.x);
  const ys = points.map((point) => point.y);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = Math.min((width - 2 * MARGIN) / (right - left || 1), (height - 2 * MARGIN) / (high - low || 1));
  return points.map((point) => ({
    ...point,
    px: width / 2 + (point.x - (left + right) / 2) * scale,
    py: height / 2 - (point.y - (low + high) / 2) * scale,
  }));
}

/** A place for each label beside its point where it covers nothing; null where there is none: the tooltip is left. */
export function placed(points, width, height) {
  const taken = points.map(({ px, py }) => ({ x: px - 5, y: py - 5, w: 10, h: 10 }));
  const [from, to] = ["text", "meta"].map((kind) => points.find((point) => point.kind === kind));
  for (let part = 0.1; from && to && part < 1; part += 0.1) {
    // the arrow is to be seen whole
    taken.push({
      x: from.px + part * (to.px - from.px) - 3,
      y: from.py + part * (to.py - from.py) - 3,
      w: 6,
      h: 6,
    });
  }
  const order = ["meta", "text", "neighbour", "query"];
  const labels = new Map();
  const byWeight = [...points.keys()].sort(
    (a, b) => order.indexOf(points[a].kind) - order.indexOf(points[b].kind),
  );
  for (const row of byWeight) {
    const { px, py, kind, label } = points[row];
    const text = kind === "meta" || kind === "text" ? KINDS[kind] : shortened(label, LETTERS);
    const w = widthOf(text);
    const far = kind === "meta" ? 12 : 9;
    const spots = [
      [px + far, py - 7],
      [px - far - w, py - 7],
      [px - w / 2, py - far - 14],
      [px - w / 2, py + far],
      [px + far, py - 18],
      [px + far, py + 5],
      [px - far - w, py - 18],
      [px - far - w, py + 5],
    ];
    const box = spots
      .map(([x, y]) => ({ x, y, w, h: 14 }))
      .find(
        (spot) =>
          spot.x >= 2 &&
          spot.x + w <= width - 2 &&
          spot.y >= 2 &&
          spot.y + 14 <= height - 2 &&
          !taken.some((other) => overlaps(spot, other)),
      );
    if (!box) continue;
    taken.push(box);
    labels.set(row, { text, ...box });
  }
  return labels;
}

const NEAR = 30; // px; nearer than that the marks are drawn small, so that the arrow is seen between them
const SAME = 4; // px; nearer than that there is no arrow to be drawn

/** The line from the text to the meta-classifier; null when they all but coincide. */
function arrow(from, to) {
  const [dx, dy] = [to.px - from.px, to.py - from.py];
  const long = Math.hypot(dx, dy);
  if (long < SAME) return null;
  const [ux, uy] = [dx / long, dy / long];
  const [start, end, head] = long < NEAR ? [0, Math.min(3, long / 4), Math.min(5, long / 2)] : [9, 12, 7];
  const [x, y] = [to.px - end * ux, to.py - end * uy];
  const side = head * 0.6;
  const barb = (sign) => `${x - head * ux + sign * side * uy} ${y - head * uy - sign * side * ux}`;
  const line = `M${from.px + start * ux} ${from.py + start * uy}L${x} ${y}`;
  return svg("path", { class: "map-arrow", d: `${line}M${barb(1)}L${x} ${y}L${barb(-1)}` });
}

function drawing(given, width, height) {
  const points = fitted(given, width, height);
  const labels = placed(points, width, height);
  const find = (kind) => points.find((point) => point.kind === kind);
  const [text, meta] = [find("text"), find("meta")];
  const counts = (kind) => given.filter((point) => point.kind === kind).length;
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-label":
      `Map in two directions of the vector space: an arrow from the item's text to its meta-classifier, ` +
      `${counts("neighbour")} neighbours and ${counts("query")} queries around it.`,
  });
  root.append(
    svg("path", { class: "map-cross", d: `M${width / 2} 8V${height - 8}M8 ${height / 2}H${width - 8}` }),
  );
  const back = ["query", "neighbour", "text", "meta"];
  const long = text && meta ? Math.hypot(meta.px - text.px, meta.py - text.py) : 0;
  if (long < NEAR) root.classList.add("near");
  for (const row of [...points.keys()].sort(
    (a, b) => back.indexOf(points[a].kind) - back.indexOf(points[b].kind),
  )) {
    const { kind, label, px, py } = points[row];
    const words = kind === "text" || kind === "meta" ? KINDS[kind] : `${KINDS[kind]}: ${label}`;
    const group = svg(
      "g",
      { class: `map-point is-${kind}`, transform: `translate(${px} ${py})` },
      svg("title", {}, words),
      svg("g", { class: "map-mark" }, SHAPES[kind]()),
    );
    group.dataset.label = label;
    const spot = labels.get(row);
    if (spot) group.append(svg("text", { x: spot.x - px, y: spot.y - py + 11 }, spot.text));
    root.append(group);
  }
  if (text && meta) root.append(arrow(text, meta) ?? "");
  return root;
}

/** A map that follows the width of its place. */
export function mapIn(place, legend) {
  let shown = null;
  const draw = () => {
    const width = Math.floor(place.clientWidth);
    if (!shown || width < 80) return;
    place.replaceChildren(drawing(shown, width, Math.round(Math.min(400, Math.max(280, width * 0.74)))));
  };
  new ResizeObserver(draw).observe(place);
  legend.replaceChildren(
    ...Object.entries(KINDS).map(([kind, word]) =>
      h(
        "li",
        {},
        svg(
          "svg",
          { class: "map-key", viewBox: "-10 -10 20 20", "aria-hidden": "true" },
          svg("g", { class: `map-point is-${kind}` }, SHAPES[kind]()),
        ),
        word,
      ),
    ),
  );
  return {
    show(points) {
      shown = points.length ? points : null;
      if (shown) draw();
      else place.replaceChildren();
    },
    /** Lifts the points of that label out, none for null. */
    point(label) {
      for (const group of place.querySelectorAll(".map-point")) {
        group.classList.toggle("pointed", label !== null && group.dataset.label === label);
      }
    },
  };
}
