// The answer: predicted margin, score bars, and the rows of the case-based explanation.

import { CaseSheet } from "./cases.js";
import { checkbox, button, element, option, tell } from "./dom.js";
import { openEdit } from "./edit.js";
import { EvidenceRegions } from "./evidence.js";
import { heatCanvas } from "./heat.js";
import { percent, signed } from "./numbers.js";
import { Pictures, showSaliency } from "./pictures.js";
import { asSegments, onFile } from "./regions.js";
import { Row } from "./rows.js";
import { factorOf, ranked, scoresWith, shares, strongest } from "./scores.js";
import { words } from "./words.js";

const SHOWN = 6;
const $ = (id) => document.getElementById(id);

export class Result extends EventTarget {
  /** look: { overlay, opacity }, shared with the film; showSource(number, lines) shows a case on its film. */
  constructor(app, look, showSource) {
    super();
    Object.assign(this, { app, look, explanation: null, level: null, all: false, rows: [], factors: new Map() });
    this.sheet = new CaseSheet(app, look, showSource);
    $("reset").addEventListener("click", () => this.reset());
    $("keep").addEventListener("click", () => openEdit(app, this.explanation.run, { weights: this.weights() }));
    $("more").addEventListener("click", () => {
      this.all = !this.all;
      this.render();
    });
    $("against").addEventListener("change", () => {
      this.against = $("against").value || null;
      this.render();
    });
  }

  /** Show an explanation of a lesion on a film (null: of all of it) as seen through a window. */
  show(explanation, film, lesion, view, run) {
    const sameModel = this.explanation?.run === explanation.run;
    Object.assign(this, { explanation, film, run, factors: new Map(), chosen: explanation.predicted, against: null });
    if (!sameModel) this.level = null;
    if (!sameModel) $("result").scrollTo(0, 0);
    this.evidence?.stop();
    this.evidence = new EvidenceRegions(
      explanation, film, lesion, (index) => this.tested(index), (error) => this.app.fail(error),
    );
    this.pictures = new Pictures(explanation, film, view, this.evidence);
    this.heats = new Map();
    $("welcome").hidden = true;
    $("answer").hidden = false;
    this.renderFlag();
    tell($("note"), explanation.note ?? "");
    showSaliency($("saliency"), explanation, this.pictures, this.look);
    this.render();
  }

  hide() {
    this.evidence?.stop();
    Object.assign(this, { explanation: null, rows: [] });
    $("rows").replaceChildren();
    $("answer").hidden = true;
    $("welcome").hidden = false;
  }

  reset() {
    this.factors.clear();
    this.refresh();
  }

  /** Let prototypes count `factor` times as much as the model has it; everything follows at once. */
  use(indices, factor) {
    for (const index of indices) {
      if (factor === 1) this.factors.delete(index);
      else this.factors.set(index, factor);
    }
    this.refresh();
  }

  /** The weights that were chosen by hand, by prototype and class. */
  weights() {
    const scaled = (part, factor) =>
      Object.fromEntries(Object.entries(part.weights).map(([name, weight]) => [name, factor * weight]));
    const chosen = this.explanation.prototypes.filter((part) => this.factors.has(part.index));
    return Object.fromEntries(chosen.map((part) => [part.index, scaled(part, this.factors.get(part.index))]));
  }

  // -- headline ---------------------------------------------------------------------------------------
  /** Wrong framing and wrong domain are told apart, and come before what the model says. */
  renderFlag() {
    const { framing, unlike_training: unlike } = this.explanation;
    const flag = framing ? "framing" : unlike ? "unlike" : null;
    $("flag").hidden = !flag;
    $("headline").classList.toggle("flagged", Boolean(flag));
    tell($("flagged-lead"), flag ? words.flaggedLead : "");
    if (!flag) return;
    $("flag").dataset.flag = flag;
    $("flag-title").textContent = words.flags[flag].title;
    $("flag-text").textContent = flag === "framing" ? `${framing} ${words.flags.framing.text}` : words.flags.unlike.text;
  }

  render() {
    this.renderScores();
    this.renderAgainst();
    this.renderLevels();
    this.renderRows();
    this.refresh();
    this.light(null);
  }

  /** Bring numbers, bars and switches up to date; rows stay, so that a slider can be dragged. */
  refresh() {
    this.scores = scoresWith(this.explanation, this.factors);
    this.shares = shares(this.scores);
    this.renderPrediction();
    for (const bar of this.bars) bar();
    for (const toggle of this.levelToggles) toggle();
    for (const row of this.rows) row.refresh();
    $("asked-back").hidden = !this.factors.size;
  }

  renderPrediction() {
    const [first] = ranked(this.scores);
    $("predicted").textContent = words.predicted(first, first === this.run.negative_class);
    $("predicted").dataset.class = first;
    const changed = this.factors.size > 0;
    $("sure").textContent = changed ? words.changed(this.explanation.predicted) : words.sure;
    $("sure").classList.toggle("changed", changed);
  }

  // -- scores -----------------------------------------------------------------------------------------
  renderScores() {
    const names = ranked(this.explanation.logits);
    $("scores-help").textContent = this.explanation.prototypes.length ? words.scoresHelp : words.scoresHelpAlone;
    const made = names.map((name) => this.bar(name));
    this.bars = made.map(([, update]) => update);
    $("scores").replaceChildren(...made.map(([bar]) => bar));
  }

  /** How far the bars of any class reach to the left and right. */
  extent() {
    let [least, most] = [0, 0];
    for (const name of Object.keys(this.scores)) {
      let [against, speaking] = [Math.min(this.scores[name], 0), Math.max(this.scores[name], 0)];
      if (this.explanation.prototypes.length) [against, speaking] = [0, 0];
      for (const part of this.explanation.prototypes) {
        const value = Math.max(factorOf(this.factors, part), 1) * part.contributions[name];
        if (value < 0) against += value;
        else speaking += value;
      }
      [least, most] = [Math.min(least, against), Math.max(most, speaking)];
    }
    return { least, most, width: most - least || 1 };
  }

  bar(name) {
    const track = element("span", "track");
    const share = element("strong", "share");
    const value = element("span", "value");
    value.dataset.testid = `score-${name}`;
    const choose = button("", () => {
      Object.assign(this, { chosen: name, against: this.against === name ? null : this.against });
      this.render();
      $("scores").querySelector(`[data-class="${CSS.escape(name)}"]`).focus();
    }, "score");
    choose.dataset.class = name;
    choose.setAttribute("aria-pressed", String(name === this.chosen));
    choose.title = words.scoreOf(name);
    choose.append(element("span", "name", name), share, track, value);
    const update = () => {
      share.textContent = percent(this.shares[name]);
      value.textContent = signed(this.scores[name]);
      value.dataset.value = String(this.scores[name]);
      track.replaceChildren(...this.segments(name));
    };
    return [choose, update];
  }

  segments(name) {
    const extent = this.extent();
    const place = (x) => `${(100 * (x - extent.least)) / extent.width}%`;
    const segment = (from, to) => {
      const part = element("span", to < from ? "against" : "for");
      part.style.left = place(Math.min(from, to));
      part.style.width = `${(100 * Math.abs(to - from)) / extent.width}%`;
      return part;
    };
    const found = [];
    let [left, right] = [0, 0];
    for (const part of strongest(this.explanation, name)) {
      const value = factorOf(this.factors, part) * part.contributions[name];
      const from = value < 0 ? left : right;
      if (value < 0) left += value;
      else right += value;
      if (value) found.push(segment(from, from + value));
    }
    if (!this.explanation.prototypes.length) found.push(segment(0, this.scores[name]));
    const [zero, total] = [element("span", "zero"), element("span", "total")];
    zero.style.left = place(0);
    total.style.left = place(this.scores[name]);
    return [...found, zero, total];
  }

  renderAgainst() {
    const names = ranked(this.explanation.logits).filter((name) => name !== this.chosen);
    const label = (name, index) => (index === 0 ? words.runnerUp(name) : name);
    $("against").replaceChildren(option("", words.nothing), ...names.map((name, index) => option(name, label(name, index))));
    $("against").value = this.against ?? "";
    $("against").parentElement.hidden = !this.explanation.prototypes.length;
  }

  // -- levels -----------------------------------------------------------------------------------------
  renderLevels() {
    const levels = [...new Set(this.explanation.prototypes.map((part) => part.level))].sort();
    this.levelToggles = [];
    $("levels").hidden = levels.length < 2;
    $("levels").replaceChildren(this.levelFilter(null), ...levels.map((level) => this.levelFilter(level)));
    $("reason-help").textContent = levels.length < 2 ? "" : words.levelsHelp;
  }

  levelFilter(level) {
    const show = button(level === null ? words.allLevels : words.levelName(level), () => {
      this.level = level;
      this.render();
      $("levels").querySelector(`[data-level="${level ?? "all"}"][data-testid=level]`).focus();
    });
    show.dataset.testid = "level";
    show.dataset.level = level ?? "all";
    show.setAttribute("aria-pressed", String(this.level === level));
    if (level === null) return element("span", "level", "", show);
    const indices = this.explanation.prototypes.filter((part) => part.level === level).map((part) => part.index);
    const use = checkbox(true, words.useLevel(level));
    use.dataset.testid = "level-toggle";
    use.dataset.level = String(level);
    use.addEventListener("change", () => this.use(indices, use.checked ? 1 : 0));
    this.levelToggles.push(() => {
      const on = indices.filter((index) => this.factors.get(index) !== 0).length;
      use.checked = on > 0;
      use.indeterminate = on > 0 && on < indices.length;
    });
    return element("span", "level", "", use, show);
  }

  // -- rows -------------------------------------------------------------------------------------------
  renderRows() {
    $("why").textContent = this.against ? words.whyRather(this.chosen, this.against) : words.why(this.chosen);
    const parts = strongest(this.explanation, this.chosen, this.against).filter(
      (part) => this.level === null || part.level === this.level,
    );
    this.rows = (this.all ? parts : parts.slice(0, SHOWN)).map((part) => new Row(this, part));
    const items = this.rows.map((row) => row.element);
    if (!this.explanation.prototypes.length) items.push(element("li", "none", words.noPrototypes));
    $("rows").replaceChildren(...items);
    this.lookForNeeded();
    $("more").hidden = parts.length <= SHOWN;
    $("more").textContent = this.all ? words.fewer : words.more(parts.length);
  }

  // -- what is needed ---------------------------------------------------------------------------------
  /** Have the parts tested whose rows are in sight, where that is what is to be seen. */
  lookForNeeded() {
    const wanted = this.look.overlay === "needed" ? this.rows.map((row) => row.part.index) : [];
    this.evidence.want(wanted);
  }

  /** The part that a comparison needs is known. */
  tested(index) {
    if (this.look.overlay !== "needed") return;
    const row = this.rows.find((each) => each.part.index === index);
    row?.paint();
    if (row?.element.classList.contains("lit")) this.light(row.part);
  }

  /** Light the evidence of a comparison on the film; of the focused or the strongest one where none is pointed at. */
  light(part) {
    const focused = this.rows.find((row) => row.element.contains(document.activeElement));
    const shown = part ?? (focused ?? this.rows[0])?.part;
    const detail = { segments: [], heat: null };
    if (shown && this.look.overlay !== "off") {
      const { explanation } = this;
      if (this.look.overlay !== "heat") detail.segments = onFile(this.pictures.lines(shown, this.look), explanation);
      else detail.heat = { canvas: this.heat(shown), region: explanation.region, mirrored: explanation.input.mirrored };
    } else if (!shown && this.explanation?.saliency && this.look.overlay !== "off") {
      const { explanation } = this;
      const { map, contours } = explanation.saliency;
      if (this.look.overlay !== "heat") detail.segments = onFile(asSegments(contours), explanation);
      else {
        const canvas = heatCanvas(map, explanation.input.size);
        detail.heat = { canvas, region: explanation.region, mirrored: explanation.input.mirrored };
      }
    }
    for (const row of this.rows) row.element.classList.toggle("lit", row.part === shown);
    this.dispatchEvent(new CustomEvent("light", { detail }));
  }

  heat(part) {
    if (!this.heats.has(part.index)) this.heats.set(part.index, heatCanvas(part.map, this.explanation.input.size));
    return this.heats.get(part.index);
  }

  /** Draw again after a change of contour, heat or opacity. */
  repaint() {
    if (!this.explanation) return;
    this.lookForNeeded();
    for (const row of this.rows) row.paint();
    showSaliency($("saliency"), this.explanation, this.pictures, this.look);
    this.light(null);
  }
}
