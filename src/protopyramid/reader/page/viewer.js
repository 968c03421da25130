// The film: tiles of a pyramid on a canvas, pan, zoom, window, and the lesion box.

import { tileUrl } from "./server.js";

const MOST_TILES = 400;
const HANDLE = 9; // pixels of the screen around a corner or side that grab it
const SMALLEST = 4; // pixels of the film

export class Viewer extends EventTarget {
  constructor(canvas) {
    super();
    this.canvas = canvas;
    this.film = null;
    this.box = null; // the lesion, [x0, y0, x1, y1] in pixels of the file
    this.square = null; // what the model sees
    this.lit = []; // segments in pixels of the file
    this.tool = "mark";
    this.inverted = false;
    this.tiles = new Map();
    this.frame = 0;
    new ResizeObserver(() => this.resized()).observe(canvas.parentElement);
    listen(this);
  }

  open(film, box) {
    this.film = film;
    this.box = box;
    this.square = null;
    this.lit = [];
    this.window = { ...film.window };
    this.tiles.clear();
    this.fit();
  }

  // -- places -------------------------------------------------------------------------------------
  get ratio() {
    return window.devicePixelRatio || 1;
  }

  get size() {
    return [this.canvas.clientWidth, this.canvas.clientHeight];
  }

  toFilm(x, y) {
    return [(x - this.left) / this.scale, (y - this.top) / this.scale];
  }

  toScreen(x, y) {
    return [x * this.scale + this.left, y * this.scale + this.top];
  }

  fit() {
    if (!this.film) return;
    const [width, height] = this.size;
    this.fitted = true;
    this.scale = Math.min((width - 16) / this.film.width, (height - 16) / this.film.height);
    this.centre(this.film.width / 2, this.film.height / 2);
  }

  centre(x, y) {
    const [width, height] = this.size;
    this.left = width / 2 - x * this.scale;
    this.top = height / 2 - y * this.scale;
    this.changed();
  }

  zoomTo(scale, x = this.size[0] / 2, y = this.size[1] / 2) {
    if (!this.film) return;
    const [filmX, filmY] = this.toFilm(x, y);
    this.fitted = false;
    const least = Math.min(0.02, this.scale);
    this.scale = Math.min(Math.max(scale, least), 32);
    this.left = x - filmX * this.scale;
    this.top = y - filmY * this.scale;
    this.changed();
  }

  zoom(factor, x, y) {
    this.zoomTo(this.scale * factor, x, y);
  }

  pan(dx, dy) {
    if (!this.film) return;
    this.fitted = false;
    this.left += dx;
    this.top += dy;
    this.changed();
  }

  resized() {
    const [width, height] = this.size;
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    if (this.fitted) this.fit();
    else this.changed();
  }

  // -- window and box -------------------------------------------------------------------------------
  setWindow(low, high) {
    if (!this.film) return;
    const middle = Math.min(Math.max((low + high) / 2, -1), 2);
    const half = Math.min(Math.max((high - low) / 2, 0.005), 2);
    this.window = { low: round(middle - half), high: round(middle + half) };
    this.changed();
    this.dispatchEvent(new Event("window"));
  }

  changeWindow(wider, brighter) {
    const { low, high } = this.window;
    const [middle, half] = [(low + high) / 2 - brighter, ((high - low) / 2) * (1 + wider)];
    this.setWindow(middle - half, middle + half);
  }

  setBox(box, final = true) {
    this.box = box && sane(box, this.film);
    this.square = null;
    this.lit = [];
    this.changed();
    this.dispatchEvent(new CustomEvent("box", { detail: { final } }));
  }

  placeBox() {
    const [x, y] = this.toFilm(this.size[0] / 2, this.size[1] / 2);
    const half = Math.min(this.film.width, this.film.height, Math.min(...this.size) / this.scale) / 6;
    this.setBox([x - half, y - half, x + half, y + half]);
  }

  moveBox(dx, dy) {
    this.setBox(movedWithin(this.box, dx, dy, this.film));
  }

  resizeBox(dx, dy) {
    const [x0, y0, x1, y1] = this.box;
    this.setBox([x0, y0, Math.max(x1 + dx, x0 + SMALLEST), Math.max(y1 + dy, y0 + SMALLEST)]);
  }

  light(found) {
    this.lit = found;
    this.changed();
  }

  changed() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
    this.dispatchEvent(new Event("view"));
  }

  // -- drawing --------------------------------------------------------------------------------------
  draw() {
    this.frame = 0;
    const context = this.canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, ...this.size);
    if (!this.film || !this.scale) return;
    this.drawTiles(context);
    this.drawSquare(context);
    this.drawLit(context);
    this.drawBox(context);
  }

  drawTiles(context) {
    const { film } = this;
    const wanted = Math.floor(Math.log2(1 / (this.scale * this.ratio)));
    const level = Math.min(Math.max(wanted, 0), film.levels - 1);
    context.imageSmoothingEnabled = this.scale < 4;
    const pending = [];
    for (let each = film.levels - 1; each >= level; each -= 1) {
      if (each !== level && each !== film.levels - 1) continue;
      this.drawLevel(context, each, pending);
    }
    for (const load of pending) load();
    if (this.inverted) {
      context.save();
      context.globalCompositeOperation = "difference";
      context.fillStyle = "white";
      context.fillRect(this.left, this.top, film.width * this.scale, film.height * this.scale);
      context.restore();
    }
  }

  drawLevel(context, level, pending) {
    const { film } = this;
    const side = film.tile * 2 ** level; // of a tile, in pixels of the film
    const [x0, y0] = this.toFilm(0, 0);
    const [x1, y1] = this.toFilm(...this.size);
    const last = [Math.ceil(film.width / side) - 1, Math.ceil(film.height / side) - 1];
    for (let row = Math.max(0, Math.floor(y0 / side)); row <= Math.min(last[1], Math.floor(y1 / side)); row += 1) {
      for (let column = Math.max(0, Math.floor(x0 / side)); column <= Math.min(last[0], Math.floor(x1 / side)); column += 1) {
        const image = this.tile(level, column, row, pending);
        if (!image) continue;
        const [x, y] = this.toScreen(column * side, row * side);
        const unit = this.scale * 2 ** level;
        context.drawImage(image, x, y, image.width * unit, image.height * unit);
      }
    }
  }

  /** The tile that is known, perhaps of another window; one of this window is fetched. */
  tile(level, column, row, pending) {
    const key = `${level}/${column}/${row}`;
    const tile = this.tiles.get(key) ?? { image: null, window: null, loading: false };
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    if (tile.window !== text(this.window) && !tile.loading) {
      tile.loading = true;
      pending.push(() => this.load(tile, level, column, row));
    }
    for (const old of this.tiles.keys()) {
      if (this.tiles.size <= MOST_TILES) break;
      this.tiles.delete(old);
    }
    return tile.image;
  }

  load(tile, level, column, row) {
    const { film } = this;
    const wanted = { ...this.window };
    const image = new Image();
    image.onload = () => {
      Object.assign(tile, { image, window: text(wanted), loading: false });
      if (film === this.film) this.changed();
    };
    image.onerror = () => {
      Object.assign(tile, { window: text(wanted), loading: false });
    };
    image.src = tileUrl(film.id, level, column, row, wanted.low, wanted.high);
  }

  drawSquare(context) {
    if (!this.square) return;
    const { x0, y0, x1, y1 } = this.square;
    const [left, top] = this.toScreen(x0, y0);
    context.setLineDash([6, 5]);
    halo(context, () => context.strokeRect(left, top, (x1 - x0) * this.scale, (y1 - y0) * this.scale), "#8ab4f8", 1.5);
    context.setLineDash([]);
  }

  drawBox(context) {
    if (!this.box) return;
    const [left, top] = this.toScreen(this.box[0], this.box[1]);
    const [right, bottom] = this.toScreen(this.box[2], this.box[3]);
    halo(context, () => context.strokeRect(left, top, right - left, bottom - top), "#ffffff", 1.5);
    context.fillStyle = "#ffffff";
    context.strokeStyle = "#000000";
    context.lineWidth = 1;
    for (const [x, y] of grips(left, top, right, bottom)) {
      context.fillRect(x - 3.5, y - 3.5, 7, 7);
      context.strokeRect(x - 3.5, y - 3.5, 7, 7);
    }
  }

  drawLit(context) {
    if (!this.lit.length) return;
    const path = new Path2D();
    for (const [ax, ay, bx, by] of this.lit) {
      path.moveTo(...this.toScreen(ax, ay));
      path.lineTo(...this.toScreen(bx, by));
    }
    context.lineCap = "round";
    halo(context, () => context.stroke(path), "#ffd75e", 2.5);
  }
}

/** A coloured line with a dark one below it, seen on black and on white. */
function halo(context, stroke, colour, width) {
  context.strokeStyle = "rgba(0, 0, 0, .75)";
  context.lineWidth = width + 2.5;
  stroke();
  context.strokeStyle = colour;
  context.lineWidth = width;
  stroke();
}

function grips(left, top, right, bottom) {
  const [x, y] = [(left + right) / 2, (top + bottom) / 2];
  return [[left, top], [x, top], [right, top], [right, y], [right, bottom], [x, bottom], [left, bottom], [left, y]];
}

const EDGES = [[0, 1], [1], [2, 1], [2], [2, 3], [3], [0, 3], [0]]; // that each grip moves
const CURSORS = ["nwse", "ns", "nesw", "ew", "nwse", "ns", "nesw", "ew"];

function sane(box, film) {
  const clip = (value, most) => Math.min(Math.max(value, 0), most);
  const x = [clip(box[0], film.width), clip(box[2], film.width)].sort((a, b) => a - b);
  const y = [clip(box[1], film.height), clip(box[3], film.height)].sort((a, b) => a - b);
  if (x[1] - x[0] < 1 || y[1] - y[0] < 1) return null;
  return [x[0], y[0], x[1], y[1]].map((edge) => Math.round(edge));
}

/** A box moved as far as the film reaches. */
function movedWithin([x0, y0, x1, y1], dx, dy, film) {
  const x = Math.min(Math.max(dx, -x0), film.width - x1);
  const y = Math.min(Math.max(dy, -y0), film.height - y1);
  return [x0 + x, y0 + y, x1 + x, y1 + y];
}

const round = (value) => Math.round(value * 1e4) / 1e4;
const text = (view) => `${view.low}:${view.high}`;

// -- mouse, touch and wheel -----------------------------------------------------------------------
function listen(viewer) {
  const { canvas } = viewer;
  let drag = null;
  const fingers = new Map();

  const place = (event) => {
    const frame = canvas.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };

  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    viewer.zoom(2 ** (-event.deltaY / (event.ctrlKey ? 120 : 400)), ...place(event));
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    if (!viewer.film) return;
    canvas.focus();
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, place(event));
    drag = fingers.size > 1 ? { kind: "pinch" } : begin(viewer, event, ...place(event));
  });

  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!drag) {
      canvas.style.cursor = viewer.film ? cursor(viewer, x, y) : "default";
      return;
    }
    if (drag.kind === "pinch") pinch(viewer, fingers, event.pointerId, [x, y]);
    else move(viewer, drag, x, y);
    fingers.set(event.pointerId, [x, y]);
  });

  const end = (event) => {
    fingers.delete(event.pointerId);
    if (drag?.kind === "box" && drag.moved) viewer.setBox(viewer.box);
    if (!fingers.size) drag = null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
}

function grip(viewer, x, y) {
  if (!viewer.box || viewer.tool !== "mark") return -1;
  const [left, top] = viewer.toScreen(viewer.box[0], viewer.box[1]);
  const [right, bottom] = viewer.toScreen(viewer.box[2], viewer.box[3]);
  return grips(left, top, right, bottom).findIndex(
    ([gripX, gripY]) => Math.abs(gripX - x) <= HANDLE && Math.abs(gripY - y) <= HANDLE,
  );
}

function inside(viewer, x, y) {
  if (!viewer.box || viewer.tool !== "mark") return false;
  const [filmX, filmY] = viewer.toFilm(x, y);
  const [x0, y0, x1, y1] = viewer.box;
  return filmX >= x0 && filmX <= x1 && filmY >= y0 && filmY <= y1;
}

function cursor(viewer, x, y) {
  const held = grip(viewer, x, y);
  if (held >= 0) return `${CURSORS[held]}-resize`;
  if (inside(viewer, x, y)) return "move";
  return { mark: "crosshair", pan: "grab", window: "ns-resize" }[viewer.tool];
}

function begin(viewer, event, x, y) {
  const start = { x, y, lastX: x, lastY: y, moved: false };
  if (event.button === 2 || viewer.tool === "window") return { kind: "window", ...start };
  if (event.button === 1 || viewer.tool === "pan") return { kind: "pan", ...start };
  const held = grip(viewer, x, y);
  if (held >= 0) return { kind: "box", edges: EDGES[held], box: [...viewer.box], ...start };
  if (inside(viewer, x, y)) return { kind: "box", edges: [0, 1, 2, 3], box: [...viewer.box], ...start };
  const [filmX, filmY] = viewer.toFilm(x, y);
  return { kind: "box", edges: [2, 3], box: [filmX, filmY, filmX, filmY], ...start };
}

function move(viewer, drag, x, y) {
  const [dx, dy] = [x - drag.lastX, y - drag.lastY];
  drag.lastX = x;
  drag.lastY = y;
  if (drag.kind === "pan") viewer.pan(dx, dy);
  if (drag.kind === "window") viewer.changeWindow(dx / 200, -dy / 400);
  if (drag.kind !== "box" || (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 4)) return;
  drag.moved = true;
  const shift = [(x - drag.x) / viewer.scale, (y - drag.y) / viewer.scale];
  if (drag.edges.length === 4) {
    viewer.setBox(movedWithin(drag.box, ...shift, viewer.film), false);
    return;
  }
  const box = drag.box.map((edge, index) => (drag.edges.includes(index) ? edge + shift[index % 2] : edge));
  viewer.setBox(box, false);
}

function pinch(viewer, fingers, id, now) {
  const other = [...fingers.entries()].find(([key]) => key !== id)?.[1];
  const before = fingers.get(id);
  if (!other || !before) return;
  const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
  const middle = [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2];
  viewer.pan((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
  viewer.zoom(distance(now, other) / distance(before, other), ...middle);
}
