// A fine annotation in the making: strokes, outlines and the lesion box, with undo and redo.
//
// The mask is a canvas as large as the film, opaque inside. What was done is a list; undoing draws the list again
// up to there, over the mask that the case had.

const INK = "#54e0b8";

export class Mask {
  constructor(width, height) {
    this.canvas = Object.assign(document.createElement("canvas"), { width, height });
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
    this.base = null; // the mask that the case had, as a canvas
    this.firstBox = null;
    this.acts = [];
    this.undone = [];
    this.kept = 0; // how many acts are saved
  }

  /** Start from a picture of a mask, white inside. */
  start(picture) {
    const { width, height } = this.canvas;
    this.context.clearRect(0, 0, width, height);
    this.context.drawImage(picture, 0, 0, width, height);
    const pixels = this.context.getImageData(0, 0, width, height);
    const { data } = pixels;
    for (let at = 0; at < data.length; at += 4) {
      data[at + 3] = data[at] > 127 ? 255 : 0;
      [data[at], data[at + 1], data[at + 2]] = [84, 224, 184];
    }
    this.context.putImageData(pixels, 0, 0);
    this.base = Object.assign(document.createElement("canvas"), { width, height });
    this.base.getContext("2d").drawImage(this.canvas, 0, 0);
  }

  // -- acts -----------------------------------------------------------------------------------------
  get changed() {
    return this.acts.length !== this.kept;
  }

  get drawsMask() {
    return this.acts.some((act) => act.kind !== "box");
  }

  get drawsBox() {
    return this.acts.some((act) => act.kind === "box");
  }

  get box() {
    return this.acts.findLast((act) => act.kind === "box")?.box ?? this.firstBox;
  }

  /** Do something; `seen`: it was drawn with `extend` already, whose soft edges must not count twice. */
  do(act, seen = false) {
    this.acts.push(act);
    this.undone = [];
    if (this.kept > this.acts.length - 1) this.kept = -1; // what was saved has been undone
    if (seen) this.redraw();
    else this.draw(act);
  }

  undo() {
    if (!this.acts.length) return false;
    this.undone.push(this.acts.pop());
    this.redraw();
    return true;
  }

  redo() {
    if (!this.undone.length) return false;
    const act = this.undone.pop();
    this.acts.push(act);
    this.draw(act);
    return true;
  }

  saved() {
    this.kept = this.acts.length;
  }

  // -- drawing --------------------------------------------------------------------------------------
  redraw() {
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (this.base) this.context.drawImage(this.base, 0, 0);
    for (const act of this.acts) this.draw(act);
  }

  draw({ kind, points, radius, erase }) {
    if (kind === "box") return;
    const { context } = this;
    context.save();
    context.globalCompositeOperation = erase ? "destination-out" : "source-over";
    Object.assign(context, { fillStyle: INK, strokeStyle: INK, lineCap: "round", lineJoin: "round" });
    if (kind === "clear") context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    else if (kind === "outline") context.fill(pathOf(points));
    else stroke(context, points, radius);
    context.restore();
  }

  /** More of a stroke that is being drawn, before it becomes an act. */
  extend(from, to, radius, erase) {
    this.draw({ kind: "stroke", points: [from, to], radius, erase });
  }

  get isEmpty() {
    const { width, height } = this.canvas;
    const { data } = this.context.getImageData(0, 0, width, height);
    for (let at = 3; at < data.length; at += 4) if (data[at] > 127) return false;
    return true;
  }

  /** The mask as a PNG: white inside, black outside. */
  toBlob() {
    const made = Object.assign(document.createElement("canvas"), { width: this.canvas.width, height: this.canvas.height });
    const context = made.getContext("2d");
    context.drawImage(this.canvas, 0, 0);
    context.globalCompositeOperation = "source-in";
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, made.width, made.height);
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = "#000000";
    context.fillRect(0, 0, made.width, made.height);
    return new Promise((resolve) => made.toBlob(resolve, "image/png"));
  }
}

function pathOf(points) {
  const path = new Path2D();
  points.forEach(([x, y], place) => (place ? path.lineTo(x, y) : path.moveTo(x, y)));
  path.closePath();
  return path;
}

function stroke(context, points, radius) {
  context.lineWidth = 2 * radius;
  context.beginPath();
  points.forEach(([x, y], place) => (place ? context.lineTo(x, y) : context.moveTo(x, y)));
  if (points.length === 1) context.lineTo(points[0][0] + 0.001, points[0][1]);
  context.stroke();
}
