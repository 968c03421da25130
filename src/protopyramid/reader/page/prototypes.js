// Prototypes: the gallery by class and size, one in detail, and a model without some of them.

import { showNeighbours } from "./cases.js";
import { button, checkbox, element, option } from "./dom.js";
import { openEdit } from "./edit.js";
import { signed, whole } from "./numbers.js";
import { paintPrototype, thumbnail } from "./pictures.js";
import { describeRun, useOfPrototypes } from "./server.js";
import { words as all } from "./words.js";

const words = all.prototypes;
const LOOK = { overlay: "contour", opacity: 1 };
const WAIT = 1000; // milliseconds between two questions how far the survey is

export function mount(root, app) {
  const gallery = element("div", "gallery");
  const detail = element("aside", "detail");
  detail.setAttribute("aria-label", words.details);
  const state = { run: null, described: null, use: null, removed: new Set(), chosen: null, shown: false };
  const cards = element("div");
  const note = element("p", "small");
  note.setAttribute("role", "status");
  const [ofClass, ofLevel, sortBy] = [element("select"), element("select"), element("select")];
  [ofClass, ofLevel, sortBy].forEach((select, index) => {
    select.dataset.testid = ["gallery-class", "gallery-level", "gallery-order"][index];
  });
  const filters = element("div", "filters", "",
    element("label", "", `${words.ofClass} `, ofClass),
    element("label", "", `${words.ofLevel} `, ofLevel),
    element("label", "", `${words.sortBy} `, sortBy));
  const removal = element("div", "removal");
  gallery.append(element("h1", "", words.title), element("p", "", words.intro), filters, note, cards, removal);
  root.append(gallery, detail);
  for (const select of [ofClass, ofLevel, sortBy]) select.addEventListener("change", renderCards);
  sortBy.append(...Object.entries(words.sorts).map(([value, text]) => option(value, text)));
  app.addEventListener("run", () => state.shown && load());

  // -- what is shown ----------------------------------------------------------------------------------
  async function load(index = null) {
    const { name } = app.run();
    if (state.run !== name) Object.assign(state, { run: name, removed: new Set(), use: null, chosen: null });
    state.chosen = index ?? state.chosen;
    try {
      const described = await describeRun(name);
      if (state.run !== name) return;
      state.described = described;
      fill(ofClass, [["", words.everyClass], ...described.classes.map((each) => [each, each])]);
      const levels = [...new Set(described.prototypes.map((each) => each.level))].sort();
      fill(ofLevel, [["", words.everyLevel], ...levels.map((each) => [String(each), all.levelName(each)])]);
      render();
      await watchUse(name);
    } catch (error) {
      app.fail(error);
    }
  }

  function fill(select, pairs) {
    const { value } = select;
    select.replaceChildren(...pairs.map(([each, text]) => option(each, text)));
    select.value = pairs.some(([each]) => each === value) ? value : "";
  }

  /** Ask how often each prototype matters, until the server knows. */
  async function watchUse(name) {
    note.textContent = state.described.prototypes.length ? "" : words.noPrototypes;
    while (state.shown && state.run === name && state.described.prototypes.length) {
      const use = await useOfPrototypes(name);
      if (use.error) {
        note.textContent = words.unknownUse;
        note.title = use.error;
        return;
      }
      if (use.prototypes) {
        state.use = use.prototypes;
        note.textContent = words.mattersHelp(state.use[0].images, state.use[0].split);
        render();
        return;
      }
      note.textContent = words.looking(use.looked_at, use.images);
      await new Promise((resolve) => setTimeout(resolve, WAIT));
    }
  }

  function render() {
    renderCards();
    renderDetail();
    renderRemoval();
  }

  // -- gallery ----------------------------------------------------------------------------------------
  function renderCards() {
    const { described, use } = state;
    const matters = (each) => (use ? use[each.index].leading : 0);
    const groups = described.classes
      .filter((name) => !ofClass.value || name === ofClass.value)
      .map((name) => {
        const found = described.prototypes.filter(
          (each) => each.class === name && (!ofLevel.value || each.level === Number(ofLevel.value)),
        );
        if (sortBy.value === "matters") found.sort((a, b) => matters(b) - matters(a));
        return [name, found];
      })
      .filter(([, found]) => found.length);
    cards.replaceChildren(...groups.flatMap(([name, found]) => [
      element("h2", "", name),
      element("ul", "cards", "", ...found.map((each) => element("li", "", "", card(each)))),
    ]));
    if (!groups.length && described.prototypes.length) cards.append(element("p", "", words.none));
  }

  function card(each) {
    const { canvas } = thumbnail("", 220);
    canvas.removeAttribute("role");
    canvas.removeAttribute("aria-label");
    canvas.setAttribute("aria-hidden", "true");
    const open = button("", () => {
      state.chosen = each.index;
      render();
      root.querySelector(`.cards [data-index="${each.index}"]`)?.focus();
    }, state.removed.has(each.index) ? "gone" : "");
    open.dataset.testid = "prototype-card";
    open.dataset.index = String(each.index);
    open.setAttribute("aria-pressed", String(each.index === state.chosen));
    open.append(element("figure", "", "", canvas), element("span", "label", words.card(each.index, each.level)));
    if (state.use) {
      const { leading, images } = state.use[each.index];
      const matters = leading / images;
      const bar = element("span");
      bar.style.width = `${100 * matters}%`;
      open.append(element("span", "small use-text", words.matters(whole(matters))), element("span", "use", "", bar));
    }
    paintPrototype(state.run, each, canvas, LOOK).catch((error) => app.fail(error));
    return open;
  }

  // -- one prototype ----------------------------------------------------------------------------------
  function renderDetail() {
    const each = state.described.prototypes.find((one) => one.index === state.chosen);
    if (!each) {
      detail.replaceChildren(element("p", "small", words.chooseOne));
      return;
    }
    const { canvas, figure } = thumbnail(all.caseCaption(each.index, each.class), 700);
    paintPrototype(state.run, each, canvas, LOOK).catch((error) => app.fail(error));
    const remove = checkbox(state.removed.has(each.index), words.remove);
    remove.dataset.testid = "remove";
    remove.addEventListener("change", () => {
      if (remove.checked) state.removed.add(each.index);
      else state.removed.delete(each.index);
      renderCards();
      renderRemoval();
    });
    remove.disabled = Boolean(state.use?.[each.index].removal.last_of_its_class);
    const near = element("div", "neighbours");
    detail.replaceChildren(
      element("h2", "", words.openCard(each.index, each.class)),
      figure,
      facts(each),
      element("h3", "", words.weights),
      weights(each),
      ...effect(each),
      element("label", "remove", "", remove, words.remove),
      near,
    );
    if (each.number !== null) near.before(button(words.openSource, () => app.go("lesion", { number: each.number })));
    showNeighbours(near, state.run, each.index, each.class, LOOK);
  }

  function facts(each) {
    const pairs = [[words.source, each.image], [words.level, all.levelName(each.level)]];
    return element("dl", "", "", ...pairs.flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]));
  }

  function weights(each) {
    const most = Math.max(...Object.values(each.weights).map(Math.abs), 1e-9);
    const cells = Object.entries(each.weights).flatMap(([name, weight]) => {
      const bar = element("span", weight < 0 ? "against" : "for");
      bar.style.width = `${(50 * Math.abs(weight)) / most}%`;
      bar.style.left = weight < 0 ? `${50 - (50 * -weight) / most}%` : "50%";
      return [element("span", "", name), element("span", "bar", "", bar), element("span", "", signed(weight))];
    });
    return element("div", "weights", "", ...cells);
  }

  /** How often it matters, and what it costs to remove it. */
  function effect(each) {
    if (!state.use) return [];
    const { leading, deciding, images, split, removal } = state.use[each.index];
    const cost = removal.last_of_its_class
      ? [element("p", "", words.lastOfClass)]
      : [
          element("p", "small", words.costHelp),
          element("ul", "", "",
            element("li", "", words.costChanges(removal.changes.length, images)),
            ...(removal.auroc_change === null ? [] : [element("li", "", words.costAuroc(signed(removal.auroc_change, 3)))]),
            element("li", "", words.costLoss(signed(removal.loss_increase, 3)))),
        ];
    return [
      element("h3", "", words.useTitle),
      element("p", "", words.mattersLong(whole(leading / images), images, split)),
      element("p", "", words.decidesLong(deciding)),
      element("h3", "", words.costTitle),
      ...cost,
    ];
  }

  // -- a model without some -----------------------------------------------------------------------------
  function renderRemoval() {
    removal.hidden = !state.removed.size;
    if (removal.hidden) return;
    removal.replaceChildren(
      element("strong", "", words.marked(state.removed.size)),
      button(words.keepAll, () => {
        state.removed.clear();
        render();
      }),
      button(all.edit.open, () => {
        openEdit(app, state.run, { remove: [...state.removed] }).then((saved) => saved && (state.removed.clear(), render()));
      }, "primary"),
    );
  }

  return {
    show(given) {
      state.shown = true;
      load(given?.index);
    },
    hide() {
      state.shown = false;
    },
  };
}
