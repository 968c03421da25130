// A second opinion: what other models say of the same lesion, beside what this one says.

import { button, element } from "./dom.js";
import { percent } from "./numbers.js";
import { Pictures, showSaliency, thumbnail } from "./pictures.js";
import { ranked, strongest } from "./scores.js";
import { explain } from "./server.js";
import { words } from "./words.js";

const REASONS = 2;

export class Others {
  constructor(app, look) {
    Object.assign(this, { app, look, answers: [] });
    this.place = document.getElementById("others");
  }

  show(explanation, film, lesion, view) {
    const runs = this.app.runs.filter((run) => run.name !== explanation.run);
    this.answers = [];
    this.place.hidden = !runs.length;
    const cards = runs.map((run) => {
      const card = element("div", "card");
      const ask = button(words.askOther(run.name), () => this.ask(card, run, explanation, film, lesion, view));
      ask.dataset.testid = "ask-other";
      card.append(ask);
      return card;
    });
    this.place.replaceChildren(element("h2", "", words.others), ...cards);
  }

  async ask(card, run, first, film, lesion, view) {
    card.replaceChildren(element("p", "small", words.reading));
    try {
      const second = await explain(film.id, run.name, lesion, undefined, run.black_box);
      const pictures = new Pictures(second, film, view);
      const why = element("div", "reasons");
      card.replaceChildren(
        element("h3", "", words.otherSays(run.name, second.predicted)),
        element("p", "", second.predicted === first.predicted ? words.agree : words.disagree(first.predicted)),
        table(first, second, run.name),
        why,
        button(words.askWhy(run.name), () => this.switchTo(run)),
      );
      const answer = { why, second, pictures };
      this.answers.push(answer);
      this.paint(answer);
    } catch (error) {
      card.replaceChildren(element("p", "small", error.message));
    }
  }

  paint({ why, second, pictures }) {
    if (second.saliency) {
      showSaliency(why, second, pictures, this.look);
      return;
    }
    why.replaceChildren(
      ...strongest(second, second.predicted).slice(0, REASONS).map((part) => {
        const [yours, theirs] = [thumbnail(words.yours, 180), thumbnail(words.caseCaption(part.index, part.class), 180)];
        Promise.all([
          pictures.paintYours(part, yours.canvas, this.look),
          pictures.paintCase(part, theirs.canvas, this.look),
        ]).catch((error) => this.app.fail(error));
        return element("div", "pair", "", yours.figure, element("span", "arrow", "↔"), theirs.figure);
      }),
    );
  }

  repaint() {
    this.answers.forEach((answer) => this.paint(answer));
  }

  switchTo(run) {
    const select = document.getElementById("run");
    select.value = run.name;
    select.dispatchEvent(new Event("change"));
    document.getElementById("result").scrollTo(0, 0);
  }
}

/** The shares of both models, class by class. */
function table(first, second, name) {
  const made = element("table", "compare");
  made.createCaption().textContent = words.bothModels;
  const head = made.createTHead().insertRow();
  for (const text of [words.className, words.thisModel, name]) {
    const cell = element("th", "", text);
    cell.scope = "col";
    head.append(cell);
  }
  const body = made.createTBody();
  for (const label of ranked(first.logits)) {
    const row = body.insertRow();
    const cell = element("th", "", label);
    cell.scope = "row";
    row.append(cell);
    for (const each of [first, second]) {
      const share = each.probabilities[label];
      row.insertCell().textContent = share === undefined ? "–" : percent(share);
    }
  }
  return made;
}
