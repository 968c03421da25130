// What the model says of a case of the study: margin, scores, and the comparisons behind it. Nothing to switch off:
// every reader sees the same.

import { element } from "./dom.js";
import { asSegments, onFile, outline } from "./regions.js";
import { ranked, shares, strongest } from "./scores.js";
import { answer, loadImage, pictureUrl } from "./server.js";
import { words } from "./words.js";

const SHOWN = 4;
const THUMBNAIL = 200; // pixels

export function showAid(explanation, film, viewer, negative, app) {
  const said = words.readings;
  const predicted = element("p", "aid-predicted", words.predicted(explanation.predicted, explanation.predicted === negative));
  predicted.dataset.testid = "study-predicted";
  const parts = [element("h2", "", said.modelSays)];
  if (explanation.unlike_training) parts.push(element("p", "warning", words.unlike));
  parts.push(predicted, bars(explanation));
  if (explanation.prototypes.length) parts.push(element("h2", "", words.why(explanation.predicted)), rows(explanation, film, viewer, app));
  else parts.push(element("p", "small", words.noPrototypes));
  return element("section", "aid", "", ...parts);
}

function bars(explanation) {
  const found = shares(explanation.logits);
  const list = element("ul", "aid-bars");
  for (const name of ranked(explanation.logits)) {
    const percent = Math.round(100 * found[name]);
    const fill = element("span", "aid-fill");
    fill.style.width = `${100 * found[name]}%`;
    list.append(element("li", "", "", element("span", "", name), element("span", "aid-track", "", fill),
      element("span", "share", `${percent} %`)));
  }
  return list;
}

function rows(explanation, film, viewer, app) {
  const list = element("ul", "aid-rows");
  const picture = loadImage(pictureUrl(film.id, explanation.region, viewer.window.low, viewer.window.high));
  const parts = strongest(explanation, explanation.predicted).slice(0, SHOWN);
  for (const part of parts) list.append(row(part, explanation, picture, viewer, app));
  return list;
}

function row(part, explanation, picture, viewer, app) {
  const lines = outline(part.map, explanation.input.size);
  const [yours, theirs] = [thumbnail(words.yours), thumbnail(words.theirs)];
  const value = part.contributions[explanation.predicted];
  const sum = `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)} ${words.speaks(value >= 0, explanation.predicted)}`;
  const item = element("li", "aid-row", "", yours.figure, theirs.figure,
    element("div", "", "", element("p", "sentence", words.sentence(part.level, part.class, part.index)), element("p", "small", sum)));
  item.tabIndex = 0;
  item.dataset.testid = "study-row";
  const light = (on) => () => viewer.light(on ? onFile(lines, explanation) : []);
  for (const [event, on] of [["pointerenter", true], ["focus", true], ["pointerleave", false], ["blur", false]]) {
    item.addEventListener(event, light(on));
  }
  fill(part, explanation, picture, lines, yours.canvas, theirs.canvas).catch((error) => app.fail(error));
  return item;
}

async function fill(part, explanation, picture, lines, yours, theirs) {
  const mirrored = ([ax, ay, bx, by]) => [1 - ax, ay, 1 - bx, by];
  paint(yours, await picture, explanation.input.mirrored ? lines.map(mirrored) : lines);
  if (!part.case) return;
  const run = encodeURIComponent(explanation.run);
  const [image, region] = await Promise.all([
    loadImage(part.case.picture),
    answer(`/api/runs/${run}/prototypes/${part.index}/contours`),
  ]);
  paint(theirs, image, asSegments(region.contours));
}

function thumbnail(caption) {
  const canvas = Object.assign(element("canvas"), { width: THUMBNAIL, height: THUMBNAIL });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", caption);
  return { canvas, figure: element("figure", "", "", canvas, element("figcaption", "", caption)) };
}

function paint(canvas, image, segments) {
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  const path = new Path2D();
  for (const [ax, ay, bx, by] of segments) {
    path.moveTo(ax * canvas.width, ay * canvas.height);
    path.lineTo(bx * canvas.width, by * canvas.height);
  }
  for (const [colour, width] of [["rgba(0, 0, 0, .75)", 5], ["#ffd75e", 2.5]]) {
    Object.assign(context, { strokeStyle: colour, lineWidth: width, lineCap: "round" });
    context.stroke(path);
  }
}
