// Read one lesion: open a film, mark the lesion, see why, ask back.

import { element, option } from "./dom.js";
import { squareAround } from "./regions.js";
import { Result } from "./result.js";
import { explain, openCase, openFile } from "./server.js";
import { Viewer } from "./viewer.js";
import { words } from "./words.js";

const PATIENCE = 350; // milliseconds after the last change of the box
const LARGE = 1200; // pixels; a larger image is a film, on which a lesion has to be marked

const $ = (id) => document.getElementById(id);

export function mount(root, app) {
  const viewer = new Viewer($("canvas"));
  const result = new Result();
  const state = { asked: null, waiting: 0 };
  $("steps").append(...words.steps.map((step) => element("li", "", step)));
  $("hint").textContent = words.dropHere;
  $("case").append(option("", words.chooseCase), ...app.cases.map((each) => option(each.number, each.name)));
  $("case-label").hidden = !app.cases.length;

  async function open(load) {
    app.clearError();
    hint(words.opening);
    try {
      const film = await load();
      const marked = film.lesion && app.run().crop === "lesion" ? film.lesion : null;
      viewer.open(film, marked);
      result.hide();
      $("welcome").hidden = false;
      if (marked || Math.max(film.width, film.height) <= LARGE) await ask();
      else hint(words.markHint);
    } catch (error) {
      hint(viewer.film ? "" : words.dropHere);
      app.fail(error);
    }
  }

  function openChosen(file) {
    const most = app.limits?.upload_bytes ?? Infinity;
    if (file.size > most) {
      app.fail(new Error(words.tooLarge(Math.floor(most / 1e6))));
      return;
    }
    $("case").value = "";
    open(() => openFile(file));
  }

  $("open-file").addEventListener("change", () => {
    const [file] = $("open-file").files;
    if (file) openChosen(file);
    $("open-file").value = "";
  });
  $("case").addEventListener("change", () => {
    const number = $("case").value;
    if (number !== "") open(() => openCase(number));
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) openChosen(file);
  });

  async function ask() {
    state.asked?.abort();
    const asked = (state.asked = new AbortController());
    const { film, box } = viewer;
    app.clearError();
    hint(words.reading);
    document.body.classList.add("waiting");
    try {
      const explanation = await explain(film.id, app.run().name, box, asked.signal);
      if (asked !== state.asked) return;
      viewer.square = explanation.region;
      viewer.changed();
      result.show(explanation, film, viewer.window, app.run().negative_class);
      hint(box ? "" : words.wholeHint);
    } catch (error) {
      if (asked === state.asked) hint("");
      app.fail(error);
    } finally {
      if (asked === state.asked) document.body.classList.remove("waiting");
    }
  }

  function askSoon() {
    clearTimeout(state.waiting);
    state.waiting = setTimeout(ask, PATIENCE);
  }

  viewer.addEventListener("box", (event) => {
    const { film, box } = viewer;
    if (box) viewer.square = squareAround(box, app.run().margin, film.width, film.height);
    if (!event.detail.final) return;
    if (box || Math.max(film.width, film.height) <= LARGE) askSoon();
    else {
      result.hide();
      hint(words.markHint);
    }
  });
  app.addEventListener("run", () => {
    if (viewer.film && result.explanation) ask();
  });
  result.addEventListener("light", (event) => viewer.light(event.detail));
  result.addEventListener("failed", (event) => app.fail(event.detail));

  // -- tools --------------------------------------------------------------------------------------------
  function hint(text) {
    $("hint").textContent = text;
    $("hint").hidden = !text;
  }

  function choose(tool) {
    viewer.tool = tool;
    for (const button of document.querySelectorAll("[data-tool]")) {
      button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
    }
  }

  function invert() {
    viewer.inverted = !viewer.inverted;
    $("invert").setAttribute("aria-pressed", String(viewer.inverted));
    viewer.changed();
  }

  const resetWindow = () => viewer.film && viewer.setWindow(viewer.film.window.low, viewer.film.window.high);
  const clear = () => viewer.box && viewer.setBox(null);

  for (const button of document.querySelectorAll("[data-tool]")) {
    button.addEventListener("click", () => choose(button.dataset.tool));
  }
  $("fit").addEventListener("click", () => viewer.fit());
  $("actual").addEventListener("click", () => viewer.zoomTo(1 / viewer.ratio));
  $("invert").addEventListener("click", invert);
  $("reset-window").addEventListener("click", resetWindow);
  $("clear").addEventListener("click", clear);
  viewer.addEventListener("view", () => {
    const { film, box } = viewer;
    if (!film) return;
    const size = box && film.spacing
      ? `${((box[2] - box[0]) * film.spacing.x).toFixed(1)} × ${((box[3] - box[1]) * film.spacing.y).toFixed(1)}`
      : "";
    const share = (value) => Math.round(100 * value);
    $("status").textContent = words.status(
      Math.round(100 * viewer.scale * viewer.ratio), share(viewer.window.low), share(viewer.window.high), size,
    );
  });

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const KEYS = {
    o: () => $("open-file").click(),
    b: () => viewer.film && viewer.placeBox(),
    m: () => choose("mark"),
    h: () => choose("pan"),
    w: () => choose("window"),
    i: invert,
    r: () => result.explanation && result.reset(),
    0: () => viewer.fit(),
    1: () => viewer.zoomTo(1 / viewer.ratio),
    "+": () => viewer.zoom(1.25),
    "=": () => viewer.zoom(1.25),
    "-": () => viewer.zoom(0.8),
    "[": () => viewer.film && viewer.changeWindow(-0.1, 0),
    "]": () => viewer.film && viewer.changeWindow(0.1, 0),
    ",": () => viewer.film && viewer.changeWindow(0, 0.03),
    ".": () => viewer.film && viewer.changeWindow(0, -0.03),
    Delete: clear,
    Backspace: clear,
  };

  function arrow(event) {
    const [x, y] = ARROWS[event.key];
    const step = (event.shiftKey ? 10 : 1) * Math.max(1, Math.round(2 / viewer.scale));
    if (!viewer.box) viewer.pan(-x * 40, -y * 40);
    else if (event.altKey) viewer.resizeBox(x * step, y * step);
    else viewer.moveBox(x * step, y * step);
  }


  function key(event) {
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.key in ARROWS && viewer.film && event.target === viewer.canvas) arrow(event);
    else if (Object.hasOwn(KEYS, name)) KEYS[name]();
    else return false;
    return true;
  }

  return { key, keys: words.keyList };
}
