// A case large: your part beside it, where it comes from, and the training cases nearest to it.

import { button, element } from "./dom.js";
import { percent } from "./numbers.js";
import { imageOf, paint, thumbnail } from "./pictures.js";
import { asSegments } from "./regions.js";
import { caseRegion, casePictureUrl, neighbours } from "./server.js";
import { words } from "./words.js";

const LARGE = 900; // pixels
const SMALL = 200;

export class CaseSheet {
  constructor(app, look, showSource) {
    Object.assign(this, { app, look, showSource });
    this.dialog = document.getElementById("case-sheet");
  }

  open(part, result) {
    const { run } = result.explanation;
    const yours = thumbnail(words.yours, LARGE);
    const theirs = thumbnail(words.caseCaption(part.index, part.class), LARGE);
    const near = element("div", "neighbours");
    const actions = element("div", "actions");
    const number = part.case?.number;
    if (number !== null && number !== undefined) actions.append(button(words.showOnFilm, () => this.onFilm(run, part.index, number)));
    actions.append(
      button(words.showInGallery, () => {
        this.dialog.close();
        this.app.go("prototypes", { index: part.index });
      }),
      button(words.close, () => this.dialog.close(), "primary"),
    );
    this.dialog.replaceChildren(
      element("h2", "", words.sentence(part.level, part.class, part.index)),
      element("div", "large", "", yours.figure, theirs.figure),
      element("p", "small", words.caseSource(part.case?.image ?? "")),
      near,
      actions,
    );
    this.dialog.showModal();
    const fail = (error) => this.app.fail(error);
    result.pictures.paintYours(part, yours.canvas, this.look).catch(fail);
    result.pictures.paintCase(part, theirs.canvas, this.look).catch(fail);
    if (this.app.cases.length) showNeighbours(near, run, part.index, part.class, this.look);
  }

  async onFilm(run, index, number) {
    this.dialog.close();
    try {
      const { contours } = await caseRegion(run, index);
      this.showSource(number, contours);
    } catch (error) {
      this.app.fail(error);
    }
  }
}

/** Show the served cases nearest to a prototype; while they are being looked for, say so. */
export async function showNeighbours(place, run, index, className, look) {
  place.replaceChildren(element("p", "small", words.lookingForNeighbours));
  let found = null;
  while (!found) {
    try {
      found = await neighbours(run, index);
    } catch (error) {
      if (error.status !== 409) {
        place.replaceChildren(element("p", "small", error.message));
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
      if (!place.isConnected) return;
    }
  }
  const figures = found.map((each) => {
    const { canvas, figure } = thumbnail(words.neighbourCaption(each.label, percent(each.similarity)), SMALL);
    if (each.label !== className) figure.classList.add("other");
    figure.dataset.testid = "neighbour";
    figure.title = each.image;
    imageOf(casePictureUrl(run, each.number))
      .then((image) => paint(canvas, image, look, asSegments(each.contours), each.map))
      .catch(() => {});
    return figure;
  });
  place.replaceChildren(element("h3", "", words.nearest(found[0]?.split)), element("div", "strip", "", ...figures));
}
