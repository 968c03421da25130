// A case large: your part beside it, where it comes from, and the training cases nearest to it.

import { button, element } from "./dom.js";
import { percent } from "./numbers.js";
import { imageOf, paint, thumbnail } from "./pictures.js";
import { asSegments } from "./regions.js";
import { caseRegion, neighbourPictureUrl, neighbours } from "./server.js";
import { words } from "./words.js";

const LARGE = 900; // pixels
const SMALL = 200;
const WAIT = 1000; // milliseconds between two questions

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
      element("h2", "", words.sentenceOf(part)),
      element("div", "large", "", yours.figure, theirs.figure),
      element("p", "small", words.caseSource(part.case?.image ?? "")),
      near,
      actions,
    );
    this.dialog.showModal();
    const fail = (error) => this.app.fail(error);
    result.pictures.paintYours(part, yours.canvas, this.look).catch(fail);
    result.pictures.paintCase(part, theirs.canvas, this.look).catch(fail);
    showNeighbours(near, run, part.index, part.class, this.look);
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

/** Show the training cases nearest to a prototype; while they are being looked for, say so. */
export async function showNeighbours(place, run, index, className, look) {
  const tell = (text) => place.replaceChildren(element("p", "small", text));
  tell(words.lookingForNeighbours);
  for (;;) {
    const found = await neighbours(run, index).catch((error) => ({ error: error.message }));
    if (found.error) {
      tell(words.noNeighbours);
      place.title = found.error;
      return;
    }
    if (found.neighbours) {
      place.replaceChildren(element("h3", "", words.nearest), strip(found.neighbours, run, index, className, look));
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, WAIT));
    if (!place.isConnected || !place.checkVisibility()) return;
    if (found.images) tell(words.lookingAt(found.looked_at, found.images));
  }
}

function strip(found, run, index, className, look) {
  const figures = found.map((each, place) => {
    const { canvas, figure } = thumbnail(words.neighbourCaption(each.label, percent(each.similarity)), SMALL);
    if (each.label !== className) figure.classList.add("other");
    figure.dataset.testid = "neighbour";
    figure.title = each.image;
    imageOf(neighbourPictureUrl(run, index, place))
      .then((image) => paint(canvas, image, look, asSegments(each.contours), each.map))
      .catch(() => {});
    return figure;
  });
  const made = element("div", "strip", "", ...figures);
  made.tabIndex = 0; // it scrolls
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", words.nearest);
  return made;
}
