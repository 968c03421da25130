// The page: what is open, what is asked, and the keys.

import { squareAround } from "./regions.js";
import { Result } from "./result.js";
import { explain, listCases, listRuns, openCase, openFile } from "./server.js";
import { Viewer } from "./viewer.js";
import { words } from "./words.js";

const PATIENCE = 350; // milliseconds after the last change of the box
const LARGE = 1200; // pixels; a larger image is a film, on which a lesion has to be marked

const $ = (id) => document.getElementById(id);
const viewer = new Viewer($("canvas"));
const result = new Result();
const state = { runs: [], limits: null, asked: null, waiting: 0 };

// -- words and theme ----------------------------------------------------------------------------------
for (const each of document.querySelectorAll("[data-word]")) each.textContent = words[each.dataset.word];
for (const each of document.querySelectorAll("[data-word-label]")) {
  each.setAttribute("aria-label", words[each.dataset.wordLabel]);
}
$("steps").append(...words.steps.map((step) => Object.assign(document.createElement("li"), { textContent: step })));
for (const [key, meaning] of words.keyList) {
  $("key-list").append(
    Object.assign(document.createElement("dt"), { textContent: key }),
    Object.assign(document.createElement("dd"), { textContent: meaning }),
  );
}
$("hint").textContent = words.dropHere;

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}
setTheme(localStorage.getItem("theme") ?? "dark");
$("theme").addEventListener("click", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
});

// -- opening ------------------------------------------------------------------------------------------
function fail(error) {
  if (error.name === "AbortError") return;
  $("error").textContent = error.message;
  $("error").hidden = false;
}

async function open(load) {
  $("error").hidden = true;
  hint(words.opening);
  try {
    const film = await load();
    const marked = film.lesion && run().crop === "lesion" ? film.lesion : null;
    viewer.open(film, marked);
    result.hide();
    $("welcome").hidden = false;
    if (marked || Math.max(film.width, film.height) <= LARGE) await ask();
    else hint(words.markHint);
  } catch (error) {
    hint(viewer.film ? "" : words.dropHere);
    fail(error);
  }
}

function openChosen(file) {
  const most = state.limits?.upload_bytes ?? Infinity;
  if (file.size > most) {
    fail(new Error(words.tooLarge(Math.floor(most / 1e6))));
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

// -- asking -------------------------------------------------------------------------------------------
const run = () => state.runs[$("run").selectedIndex] ?? state.runs[0];

async function ask() {
  state.asked?.abort();
  const asked = (state.asked = new AbortController());
  const { film, box } = viewer;
  $("error").hidden = true;
  hint(words.reading);
  document.body.classList.add("waiting");
  try {
    const explanation = await explain(film.id, run().name, box, asked.signal);
    if (asked !== state.asked) return;
    viewer.square = explanation.region;
    viewer.changed();
    result.show(explanation, film, viewer.window, run().negative_class);
    hint(box ? "" : words.wholeHint);
  } catch (error) {
    if (asked === state.asked) hint("");
    fail(error);
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
  if (box) viewer.square = squareAround(box, run().margin, film.width, film.height);
  if (!event.detail.final) return;
  if (box || Math.max(film.width, film.height) <= LARGE) askSoon();
  else {
    result.hide();
    hint(words.markHint);
  }
});
$("run").addEventListener("change", () => {
  if (viewer.film && result.explanation) ask();
});
result.addEventListener("light", (event) => viewer.light(event.detail));
result.addEventListener("failed", (event) => fail(event.detail));

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
$("help").addEventListener("click", () => $("sheet").showModal());
$("close-sheet").addEventListener("click", () => $("sheet").close());

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

// -- keys ---------------------------------------------------------------------------------------------
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
  "?": () => $("sheet").showModal(),
};

function arrow(event) {
  const [x, y] = ARROWS[event.key];
  const step = (event.shiftKey ? 10 : 1) * Math.max(1, Math.round(2 / viewer.scale));
  if (!viewer.box) viewer.pan(-x * 40, -y * 40);
  else if (event.altKey) viewer.resizeBox(x * step, y * step);
  else viewer.moveBox(x * step, y * step);
}

document.addEventListener("keydown", (event) => {
  if ($("sheet").open || event.ctrlKey || event.metaKey) return;
  if (event.target.matches("select, textarea, input[type=text]")) return;
  if (event.key in ARROWS && viewer.film && event.target === viewer.canvas) {
    event.preventDefault();
    arrow(event);
  } else if (Object.hasOwn(KEYS, event.key.length === 1 ? event.key.toLowerCase() : event.key)) {
    event.preventDefault();
    KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key]();
  }
});

// -- start --------------------------------------------------------------------------------------------
function option(value, text) {
  return Object.assign(document.createElement("option"), { value, textContent: text });
}

try {
  const listed = await listRuns();
  Object.assign(state, { runs: listed.runs, limits: listed.limits });
  $("run").append(...state.runs.map((each) => option(each.name, each.name)));
  $("run-label").hidden = state.runs.length < 2;
  if (listed.cases) {
    const { cases } = await listCases();
    $("case").append(option("", words.chooseCase));
    $("case").append(...cases.map((each) => option(each.number, each.name)));
    $("case-label").hidden = false;
  }
  document.body.dataset.ready = "true";
} catch (error) {
  fail(error);
}
