// The layout: each group is laid out by itself, and is one box in the layout of the group around it.
import { Graph, layout } from "@dagrejs/dagre";

export const HEADER = 34;
const PADDING = 16;
const GAP = 28;
const RANK_GAP = 34;
const POINT_SIZES = { join: 10, start: 14, end: 18 };
const FONT = '"Segoe UI", Roboto, "Noto Sans", sans-serif';
const pen = document.createElement("canvas").getContext("2d");
const widths = new Map();

/** Return the width of a text; measured in a font that is at least as wide as those of the stylesheet. */
export function textWidth(text, size, weight = 400) {
  const key = `${weight} ${size} ${text}`;
  if (!widths.has(key)) {
    if (widths.size > 5000) widths.clear();
    pen.font = `${weight} ${size}px system-ui, ${FONT}`;
    widths.set(key, pen.measureText(text).width);
  }
  return widths.get(key);
}

/** Return the beginning of a text that fits into a width. */
export function fitText(text, width, size, weight) {
  if (textWidth(text, size, weight) <= width) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(`${text.slice(0, middle)}…`, size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low).trimEnd()}…`;
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

function sizeOf(node) {
  const point = POINT_SIZES[node.shape];
  if (point) return { width: point, height: point };
  const label = textWidth(node.label, 13, 600);
  const detail = textWidth(node.detail || "", 11);
  if (node.group) return { width: clamp(Math.max(label, detail * 0.8) + 80, 280, 300), height: 52 };
  if (node.shape === "value") return { width: clamp(label + Math.min(detail, 90) + 66, 110, 230), height: 30 };
  const edge = node.shape === "decision" ? 40 : 0;
  return { width: clamp(Math.max(label, Math.min(detail + 40, 170)) + 72 + edge, 172, 250 + edge), height: 46 };
}

/** Place nodes without edges in rows. */
function placeInRows(boxes) {
  const columns = boxes.length <= 4 ? boxes.length : Math.ceil(Math.sqrt(boxes.length * 0.7));
  let y = 0;
  let width = 0;
  for (let n = 0; n < boxes.length; n += columns) {
    const row = boxes.slice(n, n + columns);
    const height = Math.max(...row.map((box) => box.height));
    let x = 0;
    for (const box of row) {
      box.x = x + box.width / 2;
      box.y = y + height / 2;
      x += box.width + GAP;
    }
    width = Math.max(width, x - GAP);
    y += height + GAP;
  }
  return { width, height: Math.max(0, y - GAP) };
}

/** Let an edge leave at the bottom of a box and arrive at the top of another; or the other way, upwards. */
function attach(points, from, to, hasLabel) {
  if (from === to || Math.abs(from.y - to.y) < 1) return points;
  const down = from.y < to.y ? 1 : -1;
  const end = (box, near, side) => {
    const room = Math.max(0, box.width / 2 - 28);
    return { x: box.x + clamp(near.x - box.x, -room, room) * pull, y: box.y + (side * box.height) / 2 };
  };
  // Between two ranks there is one point more, which only an edge with a label needs.
  const inner = points.length === 3 && !hasLabel ? [] : points.slice(1, -1);
  const pull = inner.length ? 1 : 0.4;
  const first = inner[0] || to;
  const last = inner.at(-1) || from;
  return [end(from, first, down), ...inner, end(to, last, -down)];
}

function placeByRank(boxes, edges) {
  const graph = new Graph({ directed: true });
  const ranker = boxes.length > 150 ? "longest-path" : "network-simplex";
  graph.setGraph({ rankdir: "TB", nodesep: GAP, ranksep: RANK_GAP, edgesep: 14, ranker });
  for (const box of boxes) graph.setNode(box.node.id, { width: box.width, height: box.height });
  for (const edge of edges) {
    const text = edge.label && fitText(edge.label, 150, 11);
    const size = text ? { width: textWidth(text, 11) + 12, height: 18, labelpos: "c" } : {};
    graph.setEdge(edge.start, edge.end, { ...size, minlen: 1, weight: edge.kind ? 1 : 2 });
    edge.text = text;
  }
  layout(graph);
  for (const box of boxes) ({ x: box.x, y: box.y } = graph.node(box.node.id));
  for (const edge of edges) {
    const { points, x, y } = graph.edge(edge.start, edge.end);
    Object.assign(edge, { points: attach(points, graph.node(edge.start), graph.node(edge.end), edge.text), x, y });
  }
  const { width, height } = graph.graph();
  return { width, height };
}

/** Return the boxes and edges of a level with the positions of their centres, and its size. */
export function layOut(level, members, edgesByLevel, collapsed) {
  const boxes = (members.get(level) || []).map((node) => {
    if (!node.group || collapsed.has(node.id)) return { node, ...sizeOf(node) };
    const inner = layOut(node.id, members, edgesByLevel, collapsed);
    const header = textWidth(node.label, 13, 600) + Math.min(textWidth(node.detail || "", 11), 160) + 110;
    const width = Math.max(inner.width + 2 * PADDING, header);
    return { node, inner, width, height: inner.height + HEADER + PADDING };
  });
  const edges = [...(edgesByLevel.get(level) || new Map()).values()];
  const size = edges.length ? placeByRank(boxes, edges) : placeInRows(boxes);
  return { boxes, edges, width: size.width, height: size.height };
}

/** Move the boxes and edges of a level, and of the levels in it, to their place in the drawing. */
export function shift(level, dx, dy, drawing = { boxes: [], edges: [] }, depth = 1) {
  for (const box of level.boxes) {
    box.x += dx;
    box.y += dy;
    box.depth = depth;
    drawing.boxes.push(box);
    if (box.inner) {
      const left = box.x - box.inner.width / 2;
      shift(box.inner, left, box.y - box.height / 2 + HEADER, drawing, depth + 1);
    }
  }
  for (const edge of level.edges) {
    edge.points = edge.points.map(({ x, y }) => ({ x: x + dx, y: y + dy }));
    edge.x += dx;
    edge.y += dy;
    edge.depth = depth;
    drawing.edges.push(edge);
  }
  return drawing;
}
