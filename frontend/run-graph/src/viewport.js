// Pan and zoom of the drawing by pointer, wheel and buttons.

const MIN_SCALE = 0.08;
const MAX_SCALE = 2.5;

export class Viewport {
  constructor(svg, view) {
    this.svg = svg;
    this.view = view;
    this.x = this.y = 0;
    this.scale = 1;
    this.pointers = new Map();
    this.hasMoved = false;
    svg.addEventListener("pointerdown", (event) => this.press(event));
    svg.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) svg.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    svg.addEventListener("wheel", (event) => this.turnWheel(event), { passive: false });
  }

  apply() {
    this.view.setAttribute("transform", `translate(${this.x.toFixed(1)},${this.y.toFixed(1)}) scale(${this.scale.toFixed(4)})`);
  }

  press(event) {
    if (event.button) return;
    this.hasMoved = false;
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }

  move(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last) return;
    const dx = event.clientX - last.x;
    const dy = event.clientY - last.y;
    if (!this.hasMoved && Math.hypot(dx, dy) < 4) return;
    if (!this.hasMoved) this.svg.setPointerCapture(event.pointerId);
    this.hasMoved = true;
    const other = [...this.pointers.entries()].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const before = Math.hypot(last.x - other.x, last.y - other.y);
      const after = Math.hypot(event.clientX - other.x, event.clientY - other.y);
      this.zoom(after / (before || 1), other.x, other.y);
    } else {
      this.x += dx;
      this.y += dy;
    }
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.apply();
  }

  /** With Ctrl the wheel zooms; otherwise it moves a drawing that has the focus, and scrolls the page. */
  turnWheel(event) {
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY * 0.004), event.clientX, event.clientY);
    else if (this.svg.matches(":focus-within")) {
      this.x -= event.deltaX;
      this.y -= event.deltaY;
      this.apply();
    } else return;
    event.preventDefault();
  }

  /** Zoom by a factor around a point of the window, or around the middle. */
  zoom(factor, clientX, clientY) {
    const area = this.svg.getBoundingClientRect();
    const x = (clientX ?? area.left + area.width / 2) - area.left;
    const y = (clientY ?? area.top + area.height / 2) - area.top;
    const scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.scale * factor));
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.apply();
  }

  /** Show the whole drawing; or, if it were illegible, the part around a point. */
  fit(width, height, legible = 0, point = null) {
    const area = this.svg.getBoundingClientRect();
    const margin = 20;
    const fitting = Math.min((area.width - 2 * margin) / width, (area.height - 2 * margin) / height, 1.1);
    this.scale = Math.max(MIN_SCALE, fitting, legible);
    const place = (size, extent, at) => {
      const drawn = extent * this.scale;
      if (drawn <= size - 2 * margin) return (size - drawn) / 2;
      const start = size / 2 - at * this.scale;
      return Math.min(margin, Math.max(size - margin - drawn, start));
    };
    this.x = place(area.width, width, point ? point.x : width / 2);
    this.y = place(area.height, height, point ? point.y : height / 2);
    this.apply();
  }

  /** Move the drawing so that a box is inside the visible area. */
  reveal(box) {
    const area = this.svg.getBoundingClientRect();
    const height = box.inner ? Math.min(box.height, 60) : box.height;
    const top = (box.y - box.height / 2) * this.scale + this.y;
    const left = (box.x - box.width / 2) * this.scale + this.x;
    const into = (start, size, room) => (start < 16 ? 16 - start : Math.min(0, room - 16 - start - size));
    this.x += into(left, box.width * this.scale, area.width);
    this.y += into(top, height * this.scale, area.height);
    this.apply();
  }
}
