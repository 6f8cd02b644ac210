// <run-graph>: a workflow as a graph with the live states of a run.
//
// Its data are in its children <script type="application/json">, which are merged in their order, or at the
// address in `data-src`. While only `states` and `state` change, the layout stays. `data-runs` is the address
// of the list of runs, below which the steps have their pages.
import { drawBox, drawEdge, element, paintEdge, paintState } from "./drawing.js";
import { layOut, shift } from "./layout.js";
import styles from "./run-graph.css";
import { Viewport } from "./viewport.js";
import { indexGraph, visibleEdges } from "./visible.js";

const LEGIBLE_SCALE = 0.55;
const ACTIVE = ["waiting", "running", "retrying", "failed"];
const BUTTONS = [
  ["fit", "Show the whole graph (0)", "M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4"],
  ["in", "Zoom in (+)", "M8 3v10M3 8h10"],
  ["out", "Zoom out (-)", "M3 8h10"],
  ["expand", "Expand all groups", "M4 6.500 8 10.500l4-4"],
  ["collapse", "Collapse all groups", "M4 9.500 8 5.500l4 4"],
];
const sheet = new CSSStyleSheet();
sheet.replaceSync(styles);

class RunGraph extends HTMLElement {
  static observedAttributes = ["data-src"];

  #data = null;
  #shape = "";
  #collapsed = new Set();
  #focused = null;
  #drawing = null;
  #boxes = new Map();

  connectedCallback() {
    if (!this.shadowRoot) this.#build();
    this.observer = new MutationObserver(() => this.#readScripts());
    this.observer.observe(this, { childList: true, characterData: true, subtree: true });
    // The first layout needs a size, which a hidden tab does not have.
    this.resizing = new ResizeObserver(() => this.#data && !this.fitted && this.#fit(LEGIBLE_SCALE));
    this.resizing.observe(this);
    this.#readScripts();
  }

  disconnectedCallback() {
    this.observer.disconnect();
    this.resizing.disconnect();
  }

  attributeChangedCallback() {
    if (this.isConnected) this.refresh();
  }

  /** Read the data from the address in `data-src` again. */
  async refresh() {
    const source = this.dataset.src;
    if (!source) return;
    const reply = await fetch(source, { headers: { Accept: "application/json" } });
    if (reply.ok) this.show(await reply.json());
  }

  /** Show other data; a graph that stays the same keeps its layout. */
  show(data) {
    const before = this.#data;
    this.#data = { title: "", states: {}, ...before, ...data };
    const shape = JSON.stringify([this.#data.nodes, this.#data.edges]);
    if (shape === this.#shape) this.#paint(before.states);
    else {
      const known = new Set(before?.nodes?.map((node) => node.id));
      const ids = new Set(this.#data.nodes.map((node) => node.id));
      for (const id of this.#collapsed) if (!ids.has(id)) this.#collapsed.delete(id);
      for (const node of this.#data.nodes) if (node.collapsed && !known.has(node.id)) this.#collapsed.add(node.id);
      this.#shape = shape;
      this.#draw();
    }
  }

  #readScripts() {
    const scripts = this.querySelectorAll(':scope > script[type="application/json"]');
    if (!scripts.length) return void (this.#data || this.refresh());
    const data = {};
    try {
      for (const script of scripts) Object.assign(data, JSON.parse(script.textContent));
    } catch {
      return; // the element is being replaced
    }
    if (data.nodes) this.show(data);
  }

  #build() {
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [sheet];
    const markers = ["arrow", "arrow-taken", "arrow-error"].map((id) =>
      element(
        "marker",
        { id, class: id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
        element("path", { d: "M0 .500 7.500 4 0 7.500 2 4Z" }),
      ),
    );
    this.view = element("g", { role: "none" });
    this.svg = element("svg", { role: "tree" }, element("defs", {}, ...markers), this.view);
    this.news = document.createElement("p");
    this.news.setAttribute("role", "status");
    const bar = document.createElement("div");
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "View of the graph");
    bar.append(...BUTTONS.map((button) => this.#makeButton(...button)));
    root.append(this.svg, bar, this.news);
    this.viewport = new Viewport(this.svg, this.view);
    this.svg.addEventListener("click", (event) => this.#click(event));
    this.svg.addEventListener("keydown", (event) => this.#press(event));
    // Not at the drawing: an SVG element that listens to the focus can get it.
    root.addEventListener("focusin", (event) => this.#focus(event.target.closest("[data-id]")?.dataset.id, false));
    this.svg.addEventListener("dragstart", (event) => event.preventDefault());
  }

  #makeButton(action, label, path) {
    const button = document.createElement("button");
    button.type = "button";
    button.title = label;
    button.setAttribute("aria-label", label.replace(/ \(.*/, ""));
    button.append(element("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, element("path", { d: path })));
    button.addEventListener("click", () => this.#act(action));
    return button;
  }

  #act(action) {
    if (action === "fit") this.#fit();
    else if (action === "in" || action === "out") this.viewport.zoom(action === "in" ? 1.25 : 0.8);
    else {
      const groups = this.#data.nodes.filter((node) => node.group).map((node) => node.id);
      this.#collapsed = new Set(action === "collapse" ? groups : []);
      this.#draw();
      this.#fit();
    }
  }

  // -- drawing -----------------------------------------------------------------------------------

  #draw() {
    const { nodes, members } = indexGraph(this.#data);
    const edges = visibleEdges(this.#data, nodes, this.#collapsed);
    const level = layOut("", members, edges, this.#collapsed);
    const drawing = shift(level, 0, 0);
    this.#drawing = { ...drawing, width: level.width, height: level.height };
    this.#boxes = new Map(drawing.boxes.map((box) => [box.node.id, box]));
    const hadFocus = this.shadowRoot.activeElement?.dataset.id !== undefined;
    // In the order of the levels, so that the frame of a group is below what is in it.
    const layers = [...drawing.boxes.map((box) => [box.depth, 1, drawBox(box)]), ...drawing.edges.map((edge) => [edge.depth, 0, drawEdge(edge)])];
    layers.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    this.view.replaceChildren(...layers.map((layer) => layer[2]));
    this.svg.setAttribute("aria-label", `Graph of ${this.#data.title}`);
    this.#describeTree(members);
    this.#paint();
    if (!this.fitted) this.#fit(LEGIBLE_SCALE);
    const ids = [...this.#boxes.keys()];
    this.#setFocused(this.#boxes.has(this.#focused) ? this.#focused : ids.find((id) => this.#boxes.get(id).item));
    if (hadFocus) this.#boxes.get(this.#focused)?.item.focus({ preventScroll: true });
    this.dataset.layouts = Number(this.dataset.layouts || 0) + 1;
  }

  #describeTree(members) {
    for (const [parent, nodes] of members) {
      if (parent && !this.#boxes.get(parent)?.inner) continue;
      const boxes = nodes.map((node) => this.#boxes.get(node.id)).filter((box) => box?.item);
      boxes.forEach((box, index) => {
        box.item.setAttribute("aria-level", box.depth);
        box.item.setAttribute("aria-posinset", index + 1);
        box.item.setAttribute("aria-setsize", boxes.length);
        if (box.node.group) box.item.setAttribute("aria-expanded", Boolean(box.inner));
      });
    }
  }

  /** Show the states; with those before, only what has changed. */
  #paint(before) {
    const { states } = this.#data;
    const news = [];
    let changed = false;
    for (const [id, box] of this.#boxes) {
      const status = states[id] || {};
      const last = before?.[id] || {};
      if (before && JSON.stringify(status) === JSON.stringify(last)) continue;
      changed = true;
      paintState(box, status, this.#hrefOf(status));
      if (before && status.state !== last.state && ["waiting", "failed"].includes(status.state)) news.push(`${box.node.label}: ${status.state}`);
    }
    if (!before || changed) for (const edge of this.#drawing.edges) paintEdge(edge, states);
    if (news.length) this.news.textContent = news.join(", ");
  }

  #hrefOf({ path, run }) {
    const runs = this.dataset.runs;
    if (!path || runs === undefined) return "";
    const parts = path.split("/").slice(1).map(encodeURIComponent);
    return [runs, encodeURIComponent(run || this.#data.run), "steps", ...parts].join("/");
  }

  #fit(legible = 0) {
    const area = this.svg.getBoundingClientRect();
    if (!area.width || !area.height || !this.#drawing) return;
    const states = this.#data.states;
    const active = ACTIVE.map((state) => this.#drawing.boxes.find((box) => !box.inner && states[box.node.id]?.state === state)).find(Boolean);
    const { width, height } = this.#drawing;
    this.viewport.fit(width, height, legible, active || { x: width / 2, y: 0 });
    this.fitted = true;
  }

  // -- pointer and keyboard ----------------------------------------------------------------------

  #click(event) {
    const id = event.target.closest("[data-id]")?.dataset.id;
    if (this.viewport.hasMoved) return void event.preventDefault();
    if (id === undefined) return;
    this.#focus(id);
    if (this.#boxes.get(id).node.group && !(event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.#toggle(id);
    } else this.#open(event, id);
  }

  /** Let the page open a step in its own way; without one, the browser follows the link. */
  #open(event, id) {
    const { path, run } = this.#data.states[id] || {};
    if (!path || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const detail = { path, run: run || this.#data.run, href: this.#hrefOf({ path, run }) };
    if (!this.dispatchEvent(new CustomEvent("open-step", { detail, bubbles: true, composed: true, cancelable: true }))) event.preventDefault();
  }

  #toggle(id) {
    const box = this.#boxes.get(id);
    const [left, top] = [box.x - box.width / 2, box.y - box.height / 2];
    if (!this.#collapsed.delete(id)) this.#collapsed.add(id);
    this.#draw();
    // The group stays where the user has seen it.
    const moved = this.#boxes.get(id);
    this.viewport.x += (left - moved.x + moved.width / 2) * this.viewport.scale;
    this.viewport.y += (top - moved.y + moved.height / 2) * this.viewport.scale;
    this.viewport.apply();
  }

  #press(event) {
    const box = this.#boxes.get(this.#focused);
    if (!box || event.altKey || event.ctrlKey || event.metaKey) return;
    const moves = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    const items = this.#drawing.boxes.filter((each) => each.item);
    if (moves[event.key]) this.#focus(this.#nearest(box, items, ...moves[event.key])?.node.id);
    else if (event.key === "Home") this.#focus(items[0].node.id);
    else if (event.key === "End") this.#focus(items.at(-1).node.id);
    else if (event.key === " " && box.node.group) this.#toggle(this.#focused);
    else if (event.key === "Enter" && box.node.group) return void this.#openGroup(event);
    else if (event.key === "+" || event.key === "=") this.#act("in");
    else if (event.key === "-") this.#act("out");
    else if (event.key === "0") this.#act("fit");
    else return;
    event.preventDefault();
  }

  /** Enter opens the step of a group; its click shows or hides what is in it. */
  #openGroup(event) {
    const href = this.#boxes.get(this.#focused).item.getAttribute("href");
    this.#open(event, this.#focused);
    const wasHandled = event.defaultPrevented;
    event.preventDefault();
    if (href && !wasHandled) window.location.assign(href);
  }

  /**
   * Return the nearest item in a direction; a step aside counts twice. Down from an expanded group is into
   * it, and only up leads from what is in a group to the group.
   */
  #nearest(box, items, dx, dy) {
    if (box.inner && dy > 0) items = items.filter((each) => each.node.parent === box.node.id);
    const around = new Set();
    for (let id = box.node.parent; id && dy >= 0; id = this.#boxes.get(id)?.node.parent) around.add(id);
    const topOf = (each) => (each.inner ? each.y - each.height / 2 + 16 : each.y);
    let found = null;
    let least = Infinity;
    for (const each of items) {
      const [x, y] = [each.x - box.x, topOf(each) - topOf(box)];
      const along = x * dx + y * dy;
      const distance = along + 2 * Math.abs(x * dy + y * dx);
      if (each !== box && !around.has(each.node.id) && along > 1 && distance < least) [found, least] = [each, distance];
    }
    return found;
  }

  #focus(id, moves = true) {
    const box = this.#boxes.get(id);
    if (!box?.item) return;
    this.#setFocused(id);
    if (moves) box.item.focus({ preventScroll: true });
    this.viewport.reveal(box);
  }

  #setFocused(id) {
    this.#boxes.get(this.#focused)?.item?.setAttribute("tabindex", "-1");
    this.#focused = id;
    this.#boxes.get(id)?.item?.setAttribute("tabindex", "0");
  }
}

customElements.define("run-graph", RunGraph);
