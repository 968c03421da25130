// What the model says of a case of the study: margin, scores, and the comparisons behind it. Nothing to switch off:
// every reader sees the same.

import { element } from "./dom.js";
import { percent, signed } from "./numbers.js";
import { Pictures, thumbnail } from "./pictures.js";
import { onFile } from "./regions.js";
import { ranked, shares, strongest } from "./scores.js";
import { words } from "./words.js";

const SHOWN = 4;
const THUMBNAIL = 200; // pixels
const LOOK = { overlay: "contour", opacity: 1 };

export function showAid(explanation, film, viewer, negative, app) {
  const said = words.readings;
  const predicted = element("p", "aid-predicted", words.predicted(explanation.predicted, explanation.predicted === negative));
  predicted.dataset.testid = "study-predicted";
  const parts = [];
  if (explanation.unlike_training) parts.push(warning(words.flags.unlike));
  parts.push(element("h2", "", said.modelSays), predicted, bars(explanation));
  if (explanation.prototypes.length) parts.push(element("h2", "", words.why(explanation.predicted)), rows(explanation, film, viewer, app));
  else parts.push(element("p", "small", words.noPrototypes));
  return element("section", "aid", "", ...parts);
}

/** Said before what the model says. */
function warning({ title, text }) {
  const made = element("div", "warning", "", element("h2", "", title), element("p", "small", text));
  made.dataset.testid = "study-unlike";
  return made;
}

function bars(explanation) {
  const found = shares(explanation.logits);
  const list = element("ul", "aid-bars");
  for (const name of ranked(explanation.logits)) {
    const fill = element("span", "aid-fill");
    fill.style.width = `${100 * found[name]}%`;
    list.append(element("li", "", "", element("span", "", name), element("span", "aid-track", "", fill),
      element("span", "share", percent(found[name]))));
  }
  return list;
}

function rows(explanation, film, viewer, app) {
  const pictures = new Pictures(explanation, film, viewer.window);
  const parts = strongest(explanation, explanation.predicted).slice(0, SHOWN);
  return element("ul", "aid-rows", "", ...parts.map((part) => row(part, explanation, pictures, viewer, app)));
}

function row(part, explanation, pictures, viewer, app) {
  const [yours, theirs] = [thumbnail(words.yours, THUMBNAIL), thumbnail(words.theirs, THUMBNAIL)];
  const value = part.contributions[explanation.predicted];
  const sum = `${signed(value)} ${words.speaks(value >= 0, explanation.predicted)}`;
  const item = element("li", "aid-row", "", yours.figure, theirs.figure,
    element("div", "", "", element("p", "sentence", words.sentenceOf(part)), element("p", "small", sum)));
  item.tabIndex = 0;
  item.dataset.testid = "study-row";
  const light = (on) => () => viewer.light(on ? onFile(pictures.outline(part), explanation) : []);
  for (const [event, on] of [["pointerenter", true], ["focus", true], ["pointerleave", false], ["blur", false]]) {
    item.addEventListener(event, light(on));
  }
  Promise.all([
    pictures.paintYours(part, yours.canvas, LOOK),
    pictures.paintCase(part, theirs.canvas, LOOK),
  ]).catch((error) => app.fail(error));
  return item;
}
