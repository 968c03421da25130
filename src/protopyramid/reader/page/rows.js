// One row of the explanation: your part ↔ the case's part, score × weight = contribution, and a plain sentence.

import { checkbox, element, tell } from "./dom.js";
import { fixed, percent, signed, whole } from "./numbers.js";
import { thumbnail } from "./pictures.js";
import { addedTo, factorOf, weightFor } from "./scores.js";
import { words } from "./words.js";

const MOST = 2; // how many times its own weight a comparison can be given
const STEP = 0.05;

export class Row {
  constructor(result, part) {
    Object.assign(this, { result, part });
    this.element = element("li", "row");
    Object.assign(this.element.dataset, { testid: "prototype-row", index: part.index, level: part.level });
    this.element.tabIndex = 0;
    this.yours = thumbnail(words.yours);
    this.theirs = thumbnail(words.theirs);
    this.element.append(this.buildPictures(), this.buildText());
    this.paint();
    const light = (on) => () => result.light(on ? part : null);
    this.element.addEventListener("pointerenter", light(true));
    this.element.addEventListener("pointerleave", light(false));
    this.element.addEventListener("focusin", light(true));
    this.element.addEventListener("focusout", light(false));
  }

  buildPictures() {
    const open = element("button", "pictures", "", this.yours.figure, element("span", "arrow", "↔"), this.theirs.figure);
    open.type = "button";
    open.dataset.testid = "open-case";
    open.setAttribute("aria-label", words.openCase(this.part.index));
    open.addEventListener("click", () => this.result.sheet.open(this.part, this.result));
    return open;
  }

  buildText() {
    const { part, result } = this;
    this.toggle = checkbox(true, words.toggle(part.index));
    this.toggle.dataset.testid = "prototype-toggle";
    this.toggle.addEventListener("change", () => result.use([part.index], this.toggle.checked ? 1 : 0));
    this.slider = Object.assign(element("input"), { type: "range", min: 0, max: MOST, step: STEP });
    this.slider.dataset.testid = "weight";
    this.slider.setAttribute("aria-label", words.weightOf(part.index));
    this.slider.addEventListener("input", () => result.use([part.index], Number(this.slider.value)));
    this.product = element("span", "product");
    this.total = element("strong", "contribution");
    this.total.dataset.testid = "contribution";
    this.side = element("span", "side");
    this.needed = element("p", "small needed");
    this.needed.dataset.testid = "needed";
    const sentence = element("p", "sentence", words.sentenceOf(part));
    return element(
      "div", "text", "",
      sentence,
      element("p", "sum", "", this.product, this.total, this.side),
      this.needed,
      element("p", "weigh", "", this.toggle, element("span", "small", words.weight), this.slider),
    );
  }

  refresh() {
    const { part, result } = this;
    const { chosen, against } = result;
    const factor = factorOf(result.factors, part);
    const shown = factor === 0 ? 1 : factor; // switched off: what it would add, struck through
    const contribution = shown * addedTo(part, chosen, against);
    this.element.classList.toggle("off", factor === 0);
    this.toggle.checked = factor !== 0;
    this.slider.value = String(factor);
    this.slider.setAttribute("aria-valuetext", words.timesWeight(factor));
    this.product.textContent = words.product(fixed(part.similarity), fixed(shown * weightFor(part, chosen, against)));
    this.total.textContent = signed(contribution);
    this.total.dataset.value = String(contribution);
    this.total.classList.toggle("less", contribution < 0);
    this.side.textContent = words.speaks(contribution >= 0, chosen, against);
  }

  neededText() {
    const found = this.result.evidence.get(this.part.index);
    if (found === undefined) return words.lookingForNeeded;
    return found ? words.needed(whole(found.share), percent(found.kept)) : words.nothingNeeded;
  }

  paint() {
    const { part, result } = this;
    const { pictures, look } = result;
    tell(this.needed, look.overlay === "needed" ? this.neededText() : "");
    Promise.all([
      pictures.paintYours(part, this.yours.canvas, look),
      pictures.paintCase(part, this.theirs.canvas, look),
    ]).catch((error) => result.app.fail(error));
  }
}
