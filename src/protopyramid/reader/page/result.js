// The answer: predicted margin, score bars, and the rows of the case-based explanation.

import { checkbox, element, tell } from "./dom.js";
import { asSegments, onFile, outline } from "./regions.js";
import { ranked, scoresWithout, shares, strongest } from "./scores.js";
import { caseContours, loadImage, pictureUrl } from "./server.js";
import { words } from "./words.js";

const SHOWN = 6;
const THUMBNAIL = 148; // pixels

const $ = (id) => document.getElementById(id);

export class Result extends EventTarget {
  constructor() {
    super();
    this.explanation = null;
    this.off = new Set(); // indices of prototypes that are switched off
    this.level = null; // the only one shown, or null
    this.all = false;
    this.pictures = new Map();
    $("reset").addEventListener("click", () => this.reset());
    $("more").addEventListener("click", () => {
      this.all = !this.all;
      this.renderRows();
    });
  }

  /** Show an explanation of a film as seen through a window. */
  show(explanation, film, view, negative) {
    const sameModel = this.explanation?.run === explanation.run;
    Object.assign(this, { explanation, film, negative, off: new Set(), chosen: explanation.predicted });
    if (!sameModel) this.level = null;
    this.outlines = new Map();
    this.picture = loadImage(pictureUrl(film.id, explanation.region, view.low, view.high));
    this.picture.catch(() => {});
    $("welcome").hidden = true;
    $("answer").hidden = false;
    tell($("unlike"), explanation.unlike_training ? words.unlike : "");
    tell($("note"), explanation.note ?? "");
    tell($("framing"), explanation.framing ? words.framing(explanation.framing) : "");
    this.render();
  }

  hide() {
    this.explanation = null;
    $("answer").hidden = true;
  }

  reset() {
    this.off.clear();
    this.render();
  }

  /** Switch prototypes on or off; everything follows at once. */
  use(indices, on) {
    for (const index of indices) {
      if (on) this.off.delete(index);
      else this.off.add(index);
    }
    this.render();
  }

  render() {
    const focused = document.activeElement?.dataset?.key;
    this.scores = scoresWithout(this.explanation, this.off);
    this.renderPrediction();
    this.renderScores();
    this.renderLevels();
    this.renderRows();
    $("reset").disabled = !this.off.size;
    if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  renderPrediction() {
    const order = ranked(this.scores);
    $("predicted").textContent = words.predicted(order[0], order[0] === this.negative);
    $("predicted").dataset.class = order[0];
    const changed = this.off.size > 0;
    $("sure").textContent = changed ? words.changed(this.explanation.predicted) : words.sure;
    $("sure").classList.toggle("changed", changed);
  }

  // -- scores -----------------------------------------------------------------------------------------
  renderScores() {
    const extent = this.extent();
    this.shares = shares(this.scores);
    const bars = ranked(this.explanation.logits).map((name) => this.bar(name, extent));
    $("scores").replaceChildren(...bars);
  }

  /** How far the bars of any class reach to the left and right, with everything switched on. */
  extent() {
    let [least, most] = [0, 0];
    for (const name of Object.keys(this.scores)) {
      const [against, speaking] = this.sums(name, new Set());
      least = Math.min(least, against, this.scores[name]);
      most = Math.max(most, speaking, this.scores[name]);
    }
    return { least, most, width: most - least || 1 };
  }

  sums(name, off) {
    let [against, speaking] = [0, 0];
    for (const part of this.explanation.prototypes) {
      const value = off.has(part.index) ? 0 : part.contributions[name];
      if (value < 0) against += value;
      else speaking += value;
    }
    return [against, speaking];
  }

  bar(name, extent) {
    const button = element("button", "score");
    button.type = "button";
    button.dataset.key = `score-${name}`;
    button.setAttribute("aria-pressed", String(name === this.chosen));
    button.title = words.scoreOf(name);
    const value = element("span", "value", signed(this.scores[name]));
    value.dataset.testid = `score-${name}`;
    value.dataset.value = String(this.scores[name]);
    const track = element("span", "track");
    const place = (x) => `${(100 * (x - extent.least)) / extent.width}%`;
    const segment = (from, to, kind) => {
      const part = element("span", kind);
      part.style.left = place(Math.min(from, to));
      part.style.width = `${(100 * Math.abs(to - from)) / extent.width}%`;
      return part;
    };
    if (this.explanation.prototypes.length) track.append(...this.segments(name, segment));
    else track.append(segment(0, this.scores[name], this.scores[name] < 0 ? "against" : "for"));
    const zero = element("span", "zero");
    zero.style.left = place(0);
    const total = element("span", "total");
    total.style.left = place(this.scores[name]);
    track.append(zero, total);
    button.append(element("span", "name", name), element("strong", "share", percent(this.shares[name])), track, value);
    button.addEventListener("click", () => {
      this.chosen = name;
      this.render();
    });
    return button;
  }

  segments(name, segment) {
    let [left, right] = [0, 0];
    return strongest(this.explanation, name)
      .filter((part) => !this.off.has(part.index))
      .map((part) => {
        const value = part.contributions[name];
        const from = value < 0 ? left : right;
        if (value < 0) left += value;
        else right += value;
        return segment(from, from + value, value < 0 ? "against" : "for");
      });
  }

  // -- levels -----------------------------------------------------------------------------------------
  renderLevels() {
    const levels = [...new Set(this.explanation.prototypes.map((part) => part.level))].sort();
    $("levels").hidden = levels.length < 2;
    $("levels").replaceChildren(this.levelFilter(null), ...levels.map((level) => this.levelFilter(level)));
  }

  levelFilter(level) {
    const group = element("span", "level");
    const show = element("button", "", level === null ? words.allLevels : words.levelName(level));
    show.type = "button";
    show.dataset.testid = "level";
    show.dataset.level = level ?? "all";
    show.dataset.key = `level-${level}`;
    show.setAttribute("aria-pressed", String(this.level === level));
    show.addEventListener("click", () => {
      this.level = level;
      this.render();
    });
    if (level === null) {
      group.append(show);
      return group;
    }
    const indices = this.explanation.prototypes.filter((part) => part.level === level).map((part) => part.index);
    const use = checkbox(indices.some((index) => !this.off.has(index)), words.useLevel(level));
    use.dataset.testid = "level-toggle";
    use.dataset.level = String(level);
    use.dataset.key = `use-level-${level}`;
    use.addEventListener("change", () => this.use(indices, use.checked));
    group.append(use, show);
    return group;
  }

  // -- rows -------------------------------------------------------------------------------------------
  renderRows() {
    $("why").textContent = words.why(this.chosen);
    const parts = strongest(this.explanation, this.chosen).filter(
      (part) => this.level === null || part.level === this.level,
    );
    const shown = this.all ? parts : parts.slice(0, SHOWN);
    const rows = shown.map((part) => this.row(part));
    if (!this.explanation.prototypes.length) rows.push(element("li", "none", words.noPrototypes));
    $("rows").replaceChildren(...rows);
    $("more").hidden = parts.length <= SHOWN;
    $("more").textContent = this.all ? words.fewer : words.more(parts.length);
  }

  row(part) {
    const contribution = part.contributions[this.chosen];
    const item = element("li", this.off.has(part.index) ? "row off" : "row");
    item.dataset.testid = "prototype-row";
    item.dataset.index = String(part.index);
    item.dataset.level = String(part.level);
    item.dataset.key = `row-${part.index}`;
    item.tabIndex = 0;
    const yours = thumbnail(words.yours);
    const theirs = thumbnail(words.theirs);
    this.paint(part, yours, theirs);
    const pictures = element("div", "pictures");
    pictures.append(yours.figure, element("span", "arrow", "↔"), theirs.figure);
    const said = words.sentence(part.level, part.class, part.index);
    const text = element("div", "text");
    text.append(element("p", "sentence", said), this.sum(part, contribution));
    text.firstChild.title = part.case?.image ?? "";
    item.append(pictures, text);
    const light = (on) => () => this.light(on ? part : null);
    item.addEventListener("pointerenter", light(true));
    item.addEventListener("pointerleave", light(false));
    item.addEventListener("focusin", light(true));
    item.addEventListener("focusout", light(false));
    return item;
  }

  sum(part, contribution) {
    const line = element("p", "sum");
    const use = checkbox(!this.off.has(part.index), words.toggle(part.index));
    use.dataset.testid = "prototype-toggle";
    use.dataset.key = `use-${part.index}`;
    use.addEventListener("change", () => this.use([part.index], use.checked));
    const total = element("strong", contribution < 0 ? "contribution less" : "contribution", signed(contribution));
    total.dataset.testid = "contribution";
    total.dataset.value = String(contribution);
    const weight = part.weights[this.chosen];
    const product = `${words.scoreWord} ${fixed(part.similarity)} × ${words.weightWord} ${fixed(weight)} = `;
    const side = words.speaks(contribution >= 0, this.chosen);
    line.append(use, element("span", "product", product), total, element("span", "side", side));
    return line;
  }

  /** The outline of a prototype on the model's input, computed when it is first needed. */
  outlineOf(part) {
    if (!this.outlines.has(part.index)) {
      this.outlines.set(part.index, outline(part.map, this.explanation.input.size));
    }
    return this.outlines.get(part.index);
  }

  light(part) {
    const found = part ? onFile(this.outlineOf(part), this.explanation) : [];
    this.dispatchEvent(new CustomEvent("light", { detail: found }));
  }

  async paint(part, yours, theirs) {
    const { explanation } = this;
    try {
      const mirrored = explanation.input.mirrored;
      const mine = this.outlineOf(part).map(([ax, ay, bx, by]) =>
        mirrored ? [1 - ax, ay, 1 - bx, by] : [ax, ay, bx, by],
      );
      paint(yours.canvas, await this.picture, mine);
      if (!part.case) return;
      if (!this.pictures.has(part.case.picture)) {
        this.pictures.set(part.case.picture, loadImage(part.case.picture));
      }
      const image = await this.pictures.get(part.case.picture);
      paint(theirs.canvas, image, []);
      paint(theirs.canvas, image, asSegments(await caseContours(explanation.run, part.index)));
    } catch (error) {
      this.dispatchEvent(new CustomEvent("failed", { detail: error }));
    }
  }
}

// -- elements ---------------------------------------------------------------------------------------
function thumbnail(caption) {
  const figure = element("figure");
  const canvas = element("canvas");
  canvas.width = canvas.height = THUMBNAIL * 2;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", caption);
  figure.append(canvas, element("figcaption", "", caption));
  return { figure, canvas };
}

function paint(canvas, image, found) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  context.drawImage(image, 0, 0, width, height);
  const path = new Path2D();
  for (const [ax, ay, bx, by] of found) {
    path.moveTo(ax * width, ay * height);
    path.lineTo(bx * width, by * height);
  }
  context.lineCap = "round";
  context.strokeStyle = "rgba(0, 0, 0, .75)";
  context.lineWidth = 8;
  context.stroke(path);
  context.strokeStyle = "#ffd75e";
  context.lineWidth = 4;
  context.stroke(path);
}

const percent = (share) => `${share > 0.995 ? ">99" : share < 0.005 ? "<1" : Math.round(100 * share)} %`;
const fixed = (value) => value.toFixed(2).replace("-", "−");
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
