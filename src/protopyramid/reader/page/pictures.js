// Small pictures of a part: an image with a contour or heat over it.

import { element } from "./dom.js";
import { heatCanvas } from "./heat.js";
import { asSegments, outline } from "./regions.js";
import { caseRegion, loadImage, pictureUrl } from "./server.js";
import { words } from "./words.js";

const SIDE = 296; // pixels of a thumbnail
const LINE = "#ffd75e";
const images = new Map();

/** An image by its address, loaded once. */
export function imageOf(url) {
  if (!images.has(url)) images.set(url, loadImage(url));
  return images.get(url);
}

export function thumbnail(caption, side = SIDE) {
  const canvas = Object.assign(element("canvas"), { width: side, height: side });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", caption);
  return { canvas, figure: element("figure", "", "", canvas, element("figcaption", "", caption)) };
}

/** Draw an image, and over it segments in fractions or a heat map, as the user has chosen. */
export function paint(canvas, image, look, segments = [], map = null) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  context.globalAlpha = 1;
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, width, height);
  if (look.overlay === "off") return;
  if (look.overlay === "heat" && map) {
    context.globalAlpha = look.opacity;
    context.drawImage(heatCanvas(map, 112), 0, 0, width, height);
    context.globalAlpha = 1;
    return;
  }
  const path = new Path2D();
  for (const [ax, ay, bx, by] of segments) {
    path.moveTo(ax * width, ay * height);
    path.lineTo(bx * width, by * height);
  }
  context.globalAlpha = Math.max(look.opacity, 0.25);
  context.lineCap = "round";
  context.strokeStyle = "rgba(0, 0, 0, .75)";
  const line = Math.min(Math.max(width / 74, 2), 5);
  context.lineWidth = 2 * line;
  context.stroke(path);
  context.strokeStyle = LINE;
  context.lineWidth = line;
  context.stroke(path);
  context.globalAlpha = 1;
}

/** The pictures of one explanation. */
export class Pictures {
  /** evidence: the evidence regions that are known, for the look "needed". */
  constructor(explanation, film, view, evidence = null) {
    Object.assign(this, { explanation, evidence, outlines: new Map() });
    this.seen = loadImage(pictureUrl(film.id, explanation.region, view.low, view.high)).then((image) =>
      explanation.input.mirrored ? mirrored(image) : image,
    );
    this.seen.catch(() => {});
  }

  /** Where a prototype activates on what the model sees, in fractions. */
  outline(part) {
    if (!this.outlines.has(part.index)) {
      this.outlines.set(part.index, outline(part.map, this.explanation.input.size));
    }
    return this.outlines.get(part.index);
  }

  /** What is outlined of a part: where it activates, or what is known to be needed. */
  lines(part, look) {
    if (look.overlay === "needed" && this.evidence) return this.evidence.get(part.index)?.segments ?? [];
    return this.outline(part);
  }

  async paintYours(part, canvas, look) {
    paint(canvas, await this.seen, look, this.lines(part, look), part.map);
  }

  async paintCase(part, canvas, look) {
    if (part.case) await paintPrototype(this.explanation.run, { index: part.index, ...part.case }, canvas, look);
  }
}

/** Draw a prototype's case ({ index, picture, pictured, box }) and where it activates there. */
export async function paintPrototype(run, { index, picture, pictured, box }, canvas, look) {
  if (!pictured) {
    paintPlace(canvas, box);
    return;
  }
  const image = await imageOf(picture);
  paint(canvas, image, { ...look, overlay: "off" });
  const region = await caseRegion(run, index);
  paint(canvas, image, look, asSegments(region.contours), region.map);
}

/** Where a part lies in a case whose picture was not shared: dark stripes, its box, and the place in words. */
function paintPlace(canvas, box) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const step = width / 14;
  Object.assign(context, { globalAlpha: 1, fillStyle: "#12161a" });
  context.fillRect(0, 0, width, height);
  Object.assign(context, { strokeStyle: "#1d242b", lineWidth: step / 2 });
  for (let x = -height; x < width; x += step) {
    context.beginPath();
    context.moveTo(x, height);
    context.lineTo(x + height, 0);
    context.stroke();
  }
  const [x0, y0, x1, y1] = box;
  Object.assign(context, { strokeStyle: LINE, lineWidth: Math.min(Math.max(width / 74, 2), 5) });
  context.strokeRect(x0 * width, y0 * height, (x1 - x0) * width, (y1 - y0) * height);
  const letters = Math.min(Math.max(width / 11, 12), 34);
  Object.assign(context, { font: `600 ${letters}px system-ui, sans-serif`, fillStyle: "#d5dbe1", textAlign: "center" });
  const lines = [words.notShared, words.place(box)];
  const top = y0 < 1 - y1 ? height - letters * 1.7 : letters * 1.2; // where there is more room
  Object.assign(context, { strokeStyle: "#12161a", lineWidth: letters / 2, lineJoin: "round" }); // over the box
  for (const draw of ["strokeText", "fillText"]) {
    lines.forEach((text, number) => context[draw](text, width / 2, top + number * letters * 1.25, width * 0.95));
  }
}

/** The picture as the model sees it, which is mirrored relative to the file. */
function mirrored(image) {
  const canvas = Object.assign(element("canvas"), { width: image.naturalWidth, height: image.naturalHeight });
  const context = canvas.getContext("2d");
  context.translate(canvas.width, 0);
  context.scale(-1, 1);
  context.drawImage(image, 0, 0);
  return canvas;
}

/** Grad-CAM of a black box: where it looked, without a case behind it. */
export function showSaliency(place, explanation, pictures, look) {
  place.hidden = !explanation.saliency;
  if (!explanation.saliency) return;
  const { canvas, figure } = thumbnail(words.gradCam);
  const { contours, map } = explanation.saliency;
  pictures.seen.then((image) => paint(canvas, image, look, asSegments(contours), map)).catch(() => {});
  place.replaceChildren(
    element("h2", "", words.gradCamTitle(explanation.predicted)),
    element("div", "beside", "", figure, element("p", "small", words.gradCamHelp)),
  );
}
