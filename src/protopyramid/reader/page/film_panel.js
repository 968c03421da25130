// A film with its few tools, for the screens where a case is given: reader study and annotating.

import { button, element } from "./dom.js";
import { Viewer } from "./viewer.js";
import { words } from "./words.js";

const STEP = 40; // pixels of the screen that an arrow key moves the film

export class FilmPanel {
  constructor(testid, label) {
    this.canvas = Object.assign(element("canvas", "panel-canvas"), { tabIndex: 0 });
    this.canvas.dataset.testid = testid;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", label);
    this.toolbar = element("div", "toolbar");
    this.toolbar.setAttribute("role", "toolbar");
    this.toolbar.setAttribute("aria-label", words.tools);
    this.inverter = button(words.invert, () => this.invert());
    this.inverter.setAttribute("aria-pressed", "false");
    this.toolbar.append(
      button(words.fit, () => this.viewer.fit()),
      button(words.actual, () => this.viewer.zoomTo(1 / this.viewer.ratio)),
      this.inverter,
      button(words.resetWindow, () => this.resetWindow()),
    );
    const stage = element("div", "panel-stage", "", this.canvas);
    this.element = element("div", "film-panel", "", this.toolbar, stage);
    this.viewer = new Viewer(this.canvas);
    this.viewer.tool = "pan";
  }

  invert() {
    this.viewer.inverted = !this.viewer.inverted;
    this.inverter.setAttribute("aria-pressed", String(this.viewer.inverted));
    this.viewer.changed();
  }

  resetWindow() {
    const { film } = this.viewer;
    if (film) this.viewer.setWindow(film.window.low, film.window.high);
  }

  /** Whether a key was one of the film's. */
  key(event) {
    const { viewer } = this;
    if (!viewer.film) return false;
    const onFilm = event.target === this.canvas;
    const acts = {
      "+": () => viewer.zoom(1.25),
      "=": () => viewer.zoom(1.25),
      "-": () => viewer.zoom(0.8),
      "[": () => viewer.changeWindow(-0.1, 0),
      "]": () => viewer.changeWindow(0.1, 0),
      ",": () => viewer.changeWindow(0, 0.03),
      ".": () => viewer.changeWindow(0, -0.03),
      f: () => viewer.fit(),
      i: () => this.invert(),
      ...(onFilm && {
        ArrowLeft: () => viewer.pan(STEP, 0),
        ArrowRight: () => viewer.pan(-STEP, 0),
        ArrowUp: () => viewer.pan(0, STEP),
        ArrowDown: () => viewer.pan(0, -STEP),
      }),
    };
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!Object.hasOwn(acts, name)) return false;
    acts[name]();
    return true;
  }
}
