// One view of a film: canvas, its status, and a hint.

import { element } from "./dom.js";
import { asSegments, squareAround } from "./regions.js";
import { lengthText } from "./shapes.js";
import { Viewer } from "./viewer.js";
import { words } from "./words.js";

const PASSING = 6000; // milliseconds

export class Pane {
  constructor(id) {
    const canvas = Object.assign(element("canvas", "film"), { id, tabIndex: 0 });
    canvas.dataset.testid = id === "canvas" ? "film" : "film-2";
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", words.canvas);
    this.name = element("p", "film-name");
    this.status = element("output", "status");
    this.message = element("p", "hint", words.dropHere);
    this.message.setAttribute("role", "status");
    this.element = element("div", "pane", "", canvas, this.name, this.status, this.message);
    this.viewer = new Viewer(canvas);
    this.explanation = null;
    this.asked = null; // what aborts the question in hand
    this.waiting = 0;
    this.viewer.addEventListener("view", () => this.tellStatus());
  }

  show(film, box) {
    this.explanation = null;
    this.name.textContent = film.name;
    this.viewer.open(film, box);
  }

  /** A hint over the film; a passing one goes away by itself. */
  hint(text, passing = false) {
    clearTimeout(this.fading);
    if (passing) this.fading = setTimeout(() => this.hint(""), PASSING);
    this.message.textContent = text;
    this.message.hidden = !text;
  }

  tellStatus() {
    const { film, box, scale, ratio, window } = this.viewer;
    if (!film) return;
    const share = (value) => Math.round(100 * value);
    const parts = [words.zoomStatus(share(scale * ratio)), words.windowStatus(share(window.low), share(window.high))];
    if (box) parts.push(words.boxStatus(...sizeOf(box, film.spacing)));
    if (this.viewer.ruler) parts.push(words.rulerStatus(lengthText(this.viewer.ruler, film.spacing)));
    this.status.textContent = parts.join("   ");
  }

  /** Outline a part of a training case, given on what the model saw of it, on its film. */
  outlineSource(film, lines, run) {
    const square = film.crop || (film.lesion && run.crop === "lesion");
    const region = seenOf(film, run);
    const { x0, y0, x1, y1 } = region;
    const place = ([ax, ay, bx, by]) => [
      x0 + ax * (x1 - x0), y0 + ay * (y1 - y0), x0 + bx * (x1 - x0), y0 + by * (y1 - y0),
    ];
    this.viewer.square = square ? region : null;
    this.viewer.light(asSegments(lines).map(place));
  }
}

/** What the model saw of a training case: the crop on its film, the square around its lesion, or all of it. */
function seenOf(film, run) {
  if (film.crop) return { x0: film.crop[0], y0: film.crop[1], x1: film.crop[2], y1: film.crop[3] };
  if (film.lesion && run.crop === "lesion") return squareAround(film.lesion, run.margin, film.width, film.height);
  return { x0: 0, y0: 0, x1: film.width, y1: film.height };
}

function sizeOf([x0, y0, x1, y1], spacing) {
  if (!spacing) return [`${x1 - x0} × ${y1 - y0}`, "px"];
  return [`${((x1 - x0) * spacing.x).toFixed(1)} × ${((y1 - y0) * spacing.y).toFixed(1)}`, "mm"];
}
