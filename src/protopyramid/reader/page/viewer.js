// The film: tiles on a canvas, pan, zoom, flip, window, the lesion's mark, a ruler, and what is lit.
//
// Tells "box" when the mark changes (detail.final: the user has let go), "window" and "view" when those do.
// Other screens add tools ({ cursor, begin(viewer, point, event) -> { move(point), end() } }) and layers, functions
// (context, viewer) that draw over the film in pixels of the screen.

import { listen } from "./pointer.js";
import { bounds, boxShape, ellipse, handles, lengthText, moved, resized, rulerShape, withHandle, within } from "./shapes.js";
import { Tiles } from "./tiles.js";

const MARK = "#ffffff";
const SQUARE = "#8ab4f8";
const EVIDENCE = "#ffd75e";
const RULER = "#7fe3c4";

export class Viewer extends EventTarget {
  constructor(canvas) {
    super();
    this.canvas = canvas;
    this.film = null;
    this.mark = null; // the lesion: a box or an outline
    this.ruler = null;
    this.square = null; // what the model sees
    this.lit = []; // segments in pixels of the file
    this.heat = null; // { canvas, region, mirrored }
    this.opacity = 0.8;
    this.tool = "mark";
    this.tools = {};
    this.layers = [];
    this.handle = -1; // the one that keys move; -1: the whole shape
    this.inverted = false;
    this.flipped = false;
    this.frame = 0;
    this.tiles = new Tiles(() => this.changed());
    new ResizeObserver(() => this.resized()).observe(canvas.parentElement);
    listen(this);
  }

  open(film, box) {
    Object.assign(this, { film, mark: box ? boxShape(box) : null, ruler: null, square: null, flipped: false });
    Object.assign(this, { lit: [], heat: null, handle: -1, window: { ...film.window } });
    this.tiles.open(film);
    this.fit();
  }

  /** The box around the lesion, [x0, y0, x1, y1] in pixels of the file, or null. */
  get box() {
    return this.mark && bounds(this.mark).map((edge) => Math.round(edge));
  }

  // -- places -------------------------------------------------------------------------------------
  get ratio() {
    return window.devicePixelRatio || 1;
  }

  get size() {
    return [this.canvas.clientWidth, this.canvas.clientHeight];
  }

  toFilm(x, y) {
    const across = (x - this.left) / this.scale;
    return [this.flipped ? this.film.width - across : across, (y - this.top) / this.scale];
  }

  toScreen(x, y) {
    return [(this.flipped ? this.film.width - x : x) * this.scale + this.left, y * this.scale + this.top];
  }

  fit() {
    if (!this.film) return;
    const [width, height] = this.size;
    this.fitted = true;
    this.scale = Math.min((width - 16) / this.film.width, (height - 16) / this.film.height);
    this.centre(this.film.width / 2, this.film.height / 2);
  }

  /** Show a part of the film, [x0, y0, x1, y1], with some of what is around it. */
  fitTo([x0, y0, x1, y1], around = 1.8) {
    const [width, height] = this.size;
    this.fitted = false;
    this.scale = Math.min(width / (x1 - x0), height / (y1 - y0)) / around;
    this.centre((x0 + x1) / 2, (y0 + y1) / 2);
  }

  centre(x, y) {
    const [width, height] = this.size;
    this.left = width / 2 - (this.flipped ? this.film.width - x : x) * this.scale;
    this.top = height / 2 - y * this.scale;
    this.changed();
  }

  zoomTo(scale, x = this.size[0] / 2, y = this.size[1] / 2) {
    if (!this.film) return;
    const [across, down] = [(x - this.left) / this.scale, (y - this.top) / this.scale];
    this.fitted = false;
    const least = Math.min(0.02, this.scale);
    this.scale = Math.min(Math.max(scale, least), 32);
    this.left = x - across * this.scale;
    this.top = y - down * this.scale;
    this.changed();
  }

  zoom(factor, x, y) {
    this.zoomTo(this.scale * factor, x, y);
  }

  pan(dx, dy) {
    if (!this.film) return;
    this.fitted = false;
    this.shift(dx, dy);
  }

  flip() {
    if (!this.film) return;
    const [x, y] = this.toFilm(this.size[0] / 2, this.size[1] / 2);
    this.flipped = !this.flipped;
    this.centre(x, y);
  }

  resized() {
    const [width, height] = this.size;
    if (!width || !height) return; // hidden
    const before = this.shown ?? [width, height];
    this.shown = [width, height];
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    if (this.fitted) this.fit();
    else if (this.film) this.shift((width - before[0]) / 2, (height - before[1]) / 2); // the middle stays
  }

  shift(dx, dy) {
    this.left += dx;
    this.top += dy;
    this.changed();
  }

  // -- window ---------------------------------------------------------------------------------------
  setWindow(low, high) {
    if (!this.film) return;
    const middle = Math.min(Math.max((low + high) / 2, -1), 2);
    const half = Math.min(Math.max((high - low) / 2, 0.005), 2);
    this.window = { low: round(middle - half), high: round(middle + half) };
    this.changed();
    this.dispatchEvent(new Event("window"));
  }

  changeWindow(wider, brighter) {
    if (!this.film) return;
    const { low, high } = this.window;
    const [middle, half] = [(low + high) / 2 - brighter, ((high - low) / 2) * (1 + wider)];
    this.setWindow(middle - half, middle + half);
  }

  // -- mark and ruler -------------------------------------------------------------------------------
  setMark(shape, final = true) {
    this.mark = shape && within(shape, this.film);
    Object.assign(this, { square: null, lit: [], heat: null });
    if (!this.mark) this.handle = -1;
    this.changed();
    this.dispatchEvent(new CustomEvent("box", { detail: { final } }));
  }

  setBox(box, final = true) {
    this.setMark(box && boxShape(box), final);
  }

  setRuler(shape) {
    this.ruler = shape && within(shape, this.film);
    this.changed();
  }

  /** The shape that handles and keys move: the ruler while measuring, else the mark. */
  get shape() {
    return this.tool === "ruler" ? this.ruler : this.mark;
  }

  setShape(shape, final = true) {
    if (this.tool === "ruler") this.setRuler(shape);
    else this.setMark(shape, final);
  }

  /** Place a mark, or a ruler while measuring, in the middle of the view. */
  place() {
    const [x, y] = this.toFilm(this.size[0] / 2, this.size[1] / 2);
    const half = Math.min(this.film.width, this.film.height, Math.min(...this.size) / this.scale) / 6;
    const box = [x - half, y - half, x + half, y + half];
    this.handle = -1;
    if (this.tool === "ruler") this.setRuler(rulerShape([box[0], y], [box[2], y]));
    else this.setMark(this.tool === "outline" ? ellipse(box) : boxShape(box));
  }

  nudge(dx, dy) {
    const across = this.flipped ? -dx : dx; // the arrow's direction on the screen
    if (this.handle >= 0) this.setShape(withHandle(this.shape, this.handle, across, dy));
    else this.setShape(moved(this.shape, across, dy, this.film));
  }

  stretch(dx, dy) {
    this.setShape(resized(this.shape, dx, dy));
  }

  /** Choose the next handle for the keys; after the last one, the whole shape. */
  nextHandle() {
    if (!this.shape) return;
    const count = handles(this.shape).length;
    this.handle = this.handle + 1 >= count ? -1 : this.handle + 1;
    this.changed();
  }

  clear() {
    if (this.tool === "ruler") this.setRuler(null);
    else if (this.mark) this.setMark(null);
  }

  /** Light evidence: segments in pixels of the file, and a heat map over a region. */
  light(segments, heat = null) {
    this.lit = segments;
    this.heat = heat;
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
    context.save();
    context.translate(this.left, this.top);
    context.scale(this.scale, this.scale);
    if (this.flipped) {
      context.translate(this.film.width, 0);
      context.scale(-1, 1);
    }
    this.drawTiles(context);
    this.drawHeat(context);
    context.restore();
    this.drawSquare(context);
    this.drawLit(context);
    this.drawMark(context);
    this.drawRuler(context);
    for (const layer of this.layers) layer(context, this);
  }

  drawTiles(context) {
    const { film, tiles } = this;
    tiles.setLook(this.window.low, this.window.high, this.inverted);
    tiles.begin();
    const wanted = Math.floor(Math.log2(1 / (this.scale * this.ratio)));
    const level = Math.min(Math.max(wanted, 0), film.levels - 1);
    context.imageSmoothingEnabled = this.scale < 4;
    const seen = this.tilesOf(level);
    // The coarsest level is soon there and fills the gaps until the others are.
    if (level !== film.levels - 1 && seen.some((tile) => !tile.image)) this.drawAll(context, this.tilesOf(film.levels - 1));
    this.drawAll(context, seen);
    tiles.fetch();
  }

  drawAll(context, seen) {
    for (const { image, x, y, unit } of seen) {
      if (image) context.drawImage(image, x, y, image.width * unit, image.height * unit);
    }
  }

  /** The tiles of a level that are in view: { image (null until it is there), x, y, unit } in pixels of the film. */
  tilesOf(level) {
    const { film } = this;
    const found = [];
    const unit = 2 ** level;
    const side = film.tile * unit; // of a tile, in pixels of the film
    const corners = [this.toFilm(0, 0), this.toFilm(...this.size)];
    const [x0, x1] = corners.map((corner) => corner[0]).sort((a, b) => a - b);
    const [y0, y1] = corners.map((corner) => corner[1]);
    const last = [Math.ceil(film.width / side) - 1, Math.ceil(film.height / side) - 1];
    for (let row = Math.max(0, Math.floor(y0 / side)); row <= Math.min(last[1], Math.floor(y1 / side)); row += 1) {
      for (let column = Math.max(0, Math.floor(x0 / side)); column <= Math.min(last[0], Math.floor(x1 / side)); column += 1) {
        found.push({ image: this.tiles.get(level, column, row), x: column * side, y: row * side, unit });
      }
    }
    return found;
  }

  drawHeat(context) {
    if (!this.heat) return;
    const { canvas, region, mirrored } = this.heat;
    context.save();
    context.globalAlpha = this.opacity;
    context.imageSmoothingEnabled = true;
    if (mirrored) {
      context.translate(region.x0 + region.x1, 0);
      context.scale(-1, 1);
    }
    context.drawImage(canvas, region.x0, region.y0, region.x1 - region.x0, region.y1 - region.y0);
    context.restore();
  }

  drawSquare(context) {
    if (!this.square) return;
    const { x0, y0, x1, y1 } = this.square;
    const [a, b] = [this.toScreen(x0, y0), this.toScreen(x1, y1)];
    const box = [Math.min(a[0], b[0]), a[1], Math.abs(b[0] - a[0]), b[1] - a[1]];
    context.setLineDash([6, 5]);
    halo(context, () => context.strokeRect(...box), SQUARE, 1.5);
    context.setLineDash([]);
  }

  drawMark(context) {
    if (!this.mark) return;
    const path = new Path2D();
    const corners =
      this.mark.kind === "outline" ? this.mark.points : [0, 2, 4, 6].map((index) => handles(this.mark)[index]);
    corners.forEach(([x, y], index) => path[index ? "lineTo" : "moveTo"](...this.toScreen(x, y)));
    path.closePath();
    halo(context, () => context.stroke(path), MARK, 1.5);
    this.drawHandles(context, this.mark, MARK, this.tool === "mark" || this.tool === "outline");
  }

  drawHandles(context, shape, colour, live) {
    if (!live) return;
    const half = shape.kind === "outline" ? 2.5 : 3.5;
    handles(shape).forEach(([x, y], index) => {
      const [left, top] = this.toScreen(x, y);
      const chosen = index === this.handle && shape === this.shape;
      const reach = chosen ? half + 2 : half;
      context.fillStyle = chosen ? EVIDENCE : colour;
      context.strokeStyle = "#000000";
      context.lineWidth = 1;
      context.fillRect(left - reach, top - reach, 2 * reach, 2 * reach);
      context.strokeRect(left - reach, top - reach, 2 * reach, 2 * reach);
    });
  }

  drawRuler(context) {
    if (!this.ruler) return;
    const [a, b] = this.ruler.points.map((point) => this.toScreen(...point));
    const path = new Path2D();
    path.moveTo(...a);
    path.lineTo(...b);
    halo(context, () => context.stroke(path), RULER, 2);
    this.drawHandles(context, this.ruler, RULER, this.tool === "ruler");
    label(context, lengthText(this.ruler, this.film.spacing), (a[0] + b[0]) / 2 + 10, (a[1] + b[1]) / 2 - 12, RULER);
  }

  drawLit(context) {
    if (!this.lit.length) return;
    const path = new Path2D();
    for (const [ax, ay, bx, by] of this.lit) {
      path.moveTo(...this.toScreen(ax, ay));
      path.lineTo(...this.toScreen(bx, by));
    }
    context.save();
    context.globalAlpha = Math.max(this.opacity, 0.25);
    context.lineCap = "round";
    halo(context, () => context.stroke(path), EVIDENCE, 2.5);
    context.restore();
  }
}

/** A coloured line with a dark one below it, seen on black and on white. */
export function halo(context, stroke, colour, width) {
  context.strokeStyle = "rgba(0, 0, 0, .75)";
  context.lineWidth = width + 2.5;
  stroke();
  context.strokeStyle = colour;
  context.lineWidth = width;
  stroke();
}

function label(context, text, x, y, colour) {
  context.font = "600 14px system-ui, sans-serif";
  const width = context.measureText(text).width;
  context.fillStyle = "rgba(0, 0, 0, .75)";
  context.fillRect(x - 5, y - 15, width + 10, 21);
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

const round = (value) => Math.round(value * 1e4) / 1e4;
