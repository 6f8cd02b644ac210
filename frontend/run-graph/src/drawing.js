// SVG elements of nodes, groups and edges. Colours are in the stylesheet only.
import { fitText, HEADER, textWidth } from "./layout.js";

const round = (value) => Math.round(value * 10) / 10;

export function element(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const ICONS = {
  agent: "M8 1.5 9.6 6.4 14.5 8 9.6 9.6 8 14.5 6.4 9.6 1.5 8 6.4 6.4Z",
  bash: "M2.5 4.5 6 8l-3.500 3.500M8 12h5.500",
  function: "M10.500 2.500C8 2 7.300 3.500 7 6L6 12c-.300 1.800-1.200 2.300-2.800 1.800M4.500 6.500h5.500",
  gate: "M8 1.800 13.500 4v4c0 3-2.200 5.200-5.500 6.300C4.700 13.200 2.500 11 2.500 8V4Z M5.600 8l1.700 1.700L10.600 6.300",
  wait: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2ZM8 4.800V8l2.200 1.600",
  child: "M2 3h8v6H2ZM6 9v4h8V7h-4",
  value: "M3 5.500h10M3 10.500h10",
  decision: "M8 14V9M8 9 3 3M8 9l5-6M3 6V3h3M10 3h3v3",
  loop: "M13.500 8A5.500 5.500 0 1 1 11.500 3.800M13.500 2v3h-3",
  map: "M2 4h12M2 8h12M2 12h12",
  parallel: "M4 2.500v11M8 2.500v11M12 2.500v11",
  group: "M2.500 2.500h4v4h-4ZM9.500 9.500h4v4h-4ZM6.500 4.500h5v5",
};
const GROUP_ICONS = { while: "loop", rounds: "loop", loop: "loop", map: "map", parallel: "parallel", child: "child" };
const MARKS = {
  completed: "M-4 0-1.200 3 4-3.500",
  failed: "M-3.200-3.200 3.200 3.200M3.200-3.200-3.200 3.200",
  cancelled: "M-3.200-3.200 3.200 3.200M3.200-3.200-3.200 3.200",
  waiting: "M-2-3.500V3.500M2-3.500V3.500",
  retrying: "M3.800 0A3.800 3.800 0 1 1 2.400-2.900M3.200-4.600V-2.200H.8",
  running: "M4 0A4 4 0 1 1 0-4",
  skipped: "M-3.500 0H3.500",
};

const polygon = (points) => element("polygon", { points: points.map((p) => p.map(round).join(",")).join(" ") });
const rectangle = (w, h, r, attributes = {}) =>
  element("rect", { x: round(-w / 2), y: round(-h / 2), width: round(w), height: round(h), rx: r, ...attributes });

/** Return the outline of a shape around the origin. */
function outline(shape, w, h) {
  const [x, y] = [w / 2, h / 2];
  switch (shape) {
    case "gate":
      return polygon([[-x + 12, -y], [x - 12, -y], [x, -y + 12], [x, y - 12], [x - 12, y], [-x + 12, y], [-x, y - 12], [-x, -y + 12]]);
    case "decision":
      return polygon([[-x + 20, -y], [x - 20, -y], [x, 0], [x - 20, y], [-x + 20, y], [-x, 0]]);
    case "agent":
      return rectangle(w, h, 16);
    case "wait":
    case "value":
      return rectangle(w, h, h / 2);
    case "bash":
      return rectangle(w, h, 2);
    default:
      return rectangle(w, h, 8);
  }
}

/** Draw a node, a collapsed group or the frame of an expanded one; `paintState` sets what changes. */
export function drawBox(box) {
  const { node, width, height } = box;
  const shape = node.group ? "group" : node.shape;
  const g = element("g", { transform: `translate(${round(box.x)},${round(box.y)})` });
  if (shape === "join" || shape === "start" || shape === "end") {
    g.setAttribute("class", `point ${shape}`);
    g.setAttribute("aria-hidden", "true");
    g.append(element("circle", { r: width / 2 }));
    if (shape === "end") g.append(element("circle", { r: width / 4, class: "core" }));
    return g;
  }
  const item = element("a", { role: "treeitem", tabindex: "-1", class: "item" });
  item.append(element("title"));
  const body = element("g", { class: "body" });
  if (node.group && !box.inner) body.append(rectangle(width, height, 8, { class: "shadow", transform: "translate(4,4)" }));
  const main = node.group ? rectangle(width, height, 8) : outline(shape, width, height);
  main.classList.add("outline");
  const halo = main.cloneNode();
  halo.setAttribute("class", "halo");
  body.append(halo, main);
  if (shape === "child") for (const x of [-width / 2 + 5, width / 2 - 5]) body.append(element("path", { class: "bar", d: `M${round(x)} ${-height / 2}v${height}` }));
  const inset = shape === "decision" ? 22 : shape === "gate" || shape === "wait" || shape === "agent" ? 12 : 10;
  const left = -width / 2 + inset;
  const centre = box.inner ? -height / 2 + HEADER / 2 : 0;
  const icon = ICONS[node.group ? GROUP_ICONS[node.group] || "group" : shape];
  const small = shape === "value";
  body.append(element("path", { class: "icon", d: icon, transform: `translate(${round(left)},${round(centre - 8)})` }));
  const lines = element("g", { transform: `translate(${round(left + 24)},${round(centre)})` });
  lines.append(element("text", { class: "label" }), element("text", { class: "detail" }));
  const mark = element("g", { class: "mark", transform: `translate(${round(width / 2 - inset - 9)},${round(centre)})` });
  mark.append(element("circle", { r: 8.5 }), element("path"));
  body.append(lines, mark);
  if (node.group) {
    const toggle = element("path", { class: "toggle", d: box.inner ? "M-4-2 0 2 4-2" : "M-2-4 2 0-2 4" });
    toggle.setAttribute("transform", `translate(${round(width / 2 - inset - 32)},${round(centre)})`);
    body.append(toggle);
  }
  item.append(body);
  item.dataset.id = node.id;
  box.item = item;
  box.lineWidth = width - 2 * inset - 24 - 20 - (node.group ? 20 : 0);
  box.isSmall = small;
  g.append(item);
  return g;
}

/** Show the state of a node: its class, its mark, its second line and its label for screen readers. */
export function paintState(box, status, href) {
  const { node, item } = box;
  if (!item) return;
  const state = status.state || "pending";
  item.setAttribute("class", `item ${node.group ? "group" : node.shape} is-${state}${box.inner ? " expanded" : ""}`);
  item.querySelector(".mark path").setAttribute("d", MARKS[state] || "");
  const [label, detail] = item.querySelectorAll("text");
  const second = status.text || node.detail || "";
  const time = node.group || status.text ? "" : status.time || "";
  if (box.inner || box.isSmall) {
    const text = fitText(node.label, box.lineWidth * 0.75, 13, 600);
    label.textContent = text;
    label.setAttribute("y", 4.5);
    const x = textWidth(text, 13, 600) + 8;
    detail.textContent = box.lineWidth - x > 24 ? fitText(second, box.lineWidth - x, 11) : "";
    detail.setAttribute("x", round(x));
    detail.setAttribute("y", 4.5);
  } else {
    const extra = time ? ` · ${time}` : "";
    label.textContent = fitText(node.label, box.lineWidth, 13, 600);
    detail.textContent = fitText(second || node.word || "", box.lineWidth - textWidth(extra, 11), 11) + extra;
    label.setAttribute("y", -3.5);
    detail.setAttribute("y", 12.5);
  }
  const described = [node.label, node.word, state, status.text, status.time].filter(Boolean).join(", ");
  item.setAttribute("aria-label", described);
  item.querySelector("title").textContent = [described, node.detail].filter(Boolean).join("\n");
  if (href) item.setAttribute("href", href);
  else item.removeAttribute("href");
}

/** Return the path of an edge through its points: it is vertical in each of them. */
function edgePath({ start, end, points }) {
  const at = (x, y) => `${round(x)} ${round(y)}`;
  if (start === end) return `M${points.map(({ x, y }) => at(x, y)).join("L")}`;
  let path = `M${at(points[0].x, points[0].y)}`;
  for (let n = 1; n < points.length; n += 1) {
    const [a, b] = [points[n - 1], points[n]];
    const middle = (a.y + b.y) / 2;
    path += Math.abs(a.x - b.x) < 1 ? `L${at(b.x, b.y)}` : `C${at(a.x, middle)} ${at(b.x, middle)} ${at(b.x, b.y)}`;
  }
  return path;
}

export function drawEdge(edge) {
  const g = element("g", { class: "edge" });
  g.append(element("path", { d: edgePath(edge) }));
  if (edge.text) {
    const width = textWidth(edge.text, 11) + 10;
    g.append(
      element("rect", { x: round(edge.x - width / 2), y: round(edge.y - 9), width: round(width), height: 18, rx: 9 }),
      element("text", { x: round(edge.x), y: round(edge.y + 4), class: "edge-label" }, edge.text),
    );
  }
  edge.g = g;
  return g;
}

/** Mark an edge that a run has taken: its start is over, and its end has started. */
export function paintEdge(edge, states) {
  const over = ["completed", "failed", undefined].includes(states[edge.start]?.state);
  const start = /~(start|join\d+)$/.test(edge.start) || (over && states[edge.start]);
  const end = states[edge.end]?.state || (/~(end|join\d+)$/.test(edge.end) ? "completed" : "pending");
  const isTaken = start && over && !["pending", "skipped"].includes(end);
  const kind = edge.kind ? " is-error" : "";
  edge.g.setAttribute("class", `edge${kind}${isTaken ? " is-taken" : ""}`);
  edge.g.firstChild.setAttribute("marker-end", `url(#arrow${edge.kind ? "-error" : isTaken ? "-taken" : ""})`);
}
