// Read one lesion: open a film, mark the lesion, see why, ask back.

import { button, element, option } from "./dom.js";
import { Others } from "./others.js";
import { Pane } from "./pane.js";
import { squareAround } from "./regions.js";
import { Result } from "./result.js";
import { saveMenu } from "./save.js";
import { explain, openCase, openCaseFilm, openFile } from "./server.js";
import { words } from "./words.js";

const PATIENCE = 350; // milliseconds after the last change of the mark
const LARGE = 1200; // pixels; a larger image is a film, on which a lesion has to be marked
const SPLITS = ["", "test", "validation", "train"];
const OVERLAYS = ["contour", "heat", "needed", "off"];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

const $ = (id) => document.getElementById(id);

export function mount(root, app) {
  const look = { overlay: "contour", opacity: 0.8 };
  const panes = [new Pane("canvas"), new Pane("canvas-2")];
  const result = new Result(app, look, showSource);
  const others = new Others(app, look);
  let active = panes[0];
  let tool = "mark";

  // -- opening ----------------------------------------------------------------------------------------
  async function open(load, pane = active) {
    app.clearError();
    activate(pane);
    pane.hint(words.opening);
    guide("opening");
    try {
      const film = await load();
      const marked = film.lesion && app.run().crop === "lesion" ? film.lesion : null;
      pane.show(film, marked);
      if (pane === active) showPresets();
      if (pane === active) hideAnswer();
      if (marked || !isFilm(film)) await ask(pane);
      else askForMark(pane);
    } catch (error) {
      pane.hint(pane.viewer.film ? "" : words.dropHere);
      guide(pane.viewer.film ? "mark" : "open");
      app.fail(error);
    }
  }

  /** What is to be done next, beside the film: `state` is one of the words of the welcome. */
  function guide(state) {
    $("welcome-title").textContent = words.welcome[state];
    const step = { open: 0, opening: 0, mark: 1, reading: 2 }[state];
    [...$("steps").children].forEach((each, index) => {
      each.classList.toggle("now", index === step);
      if (index === step) each.setAttribute("aria-current", "step");
      else each.removeAttribute("aria-current");
    });
  }

  function askForMark(pane) {
    pane.hint(words.markHint);
    guide("mark");
  }

  const isFilm = (film) => Math.max(film.width, film.height) > LARGE;

  function openChosen(file, pane = active) {
    const most = app.limits?.upload_bytes ?? Infinity;
    if (file.size > most) {
      app.fail(new Error(words.tooLarge(Math.floor(most / 1e6))));
      return;
    }
    $("case").value = "";
    open(() => openFile(file), pane);
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
    if (file && !root.hidden) openChosen(file, panes.find((pane) => pane.element.contains(event.target)) ?? active);
  });

  /** Show a served case in the second view, with a part of it outlined. */
  async function showSource(number, lines) {
    setTwo(true);
    const pane = panes[1];
    app.clearError();
    pane.hint(words.opening);
    try {
      const film = await openCaseFilm(number);
      pane.show(film, null);
      pane.outlineSource(film, lines, app.run());
      pane.hint("");
    } catch (error) {
      pane.hint("");
      app.fail(error);
    }
  }

  // -- asking -----------------------------------------------------------------------------------------
  async function ask(pane = active) {
    pane.asked?.abort();
    const asked = (pane.asked = new AbortController());
    const { film, box } = pane.viewer;
    const run = app.run();
    app.clearError();
    pane.hint(words.reading);
    guide("reading");
    document.body.classList.add("waiting");
    try {
      const explanation = await explain(film.id, run.name, box, asked.signal, run.black_box);
      if (asked !== pane.asked) return;
      pane.explanation = explanation;
      pane.viewer.square = explanation.region;
      pane.viewer.changed();
      if (pane === active) showAnswer();
      pane.hint(box || isFilm(film) ? "" : words.wholeHint, true);
    } catch (error) {
      if (asked === pane.asked) {
        pane.hint("");
        guide("mark");
      }
      app.fail(error);
    } finally {
      if (asked === pane.asked) document.body.classList.remove("waiting");
    }
  }

  function askSoon(pane) {
    clearTimeout(pane.waiting);
    pane.waiting = setTimeout(() => ask(pane), PATIENCE);
  }

  function showAnswer() {
    const { viewer, explanation } = active;
    result.show(explanation, viewer.film, viewer.box, viewer.window, app.run());
    others.show(explanation, viewer.film, viewer.box, viewer.window);
  }

  function hideAnswer() {
    active.explanation = null;
    result.hide();
  }

  for (const pane of panes) {
    pane.viewer.addEventListener("box", (event) => {
      const { film, box } = pane.viewer;
      if (box) pane.viewer.square = squareAround(box, app.run().margin, film.width, film.height);
      if (!event.detail.final) return;
      if (box || !isFilm(film)) askSoon(pane);
      else {
        clearTimeout(pane.waiting);
        hideAnswer();
        askForMark(pane);
      }
    });
    pane.element.addEventListener("pointerdown", () => activate(pane), true);
    pane.element.addEventListener("focusin", () => activate(pane));
  }

  app.addEventListener("run", () => {
    for (const pane of panes) if (pane.viewer.film && pane.explanation) ask(pane);
  });
  result.addEventListener("light", (event) => active.viewer.light(event.detail.segments, event.detail.heat));

  // -- views ------------------------------------------------------------------------------------------
  function activate(pane) {
    if (pane === active) return;
    active.viewer.light([]);
    active = pane;
    for (const each of panes) each.element.classList.toggle("active", each === active);
    $("invert").setAttribute("aria-pressed", String(active.viewer.inverted));
    $("flip").setAttribute("aria-pressed", String(active.viewer.flipped));
    showPresets();
    if (active.explanation) showAnswer();
    else {
      result.hide();
      guide(active.viewer.film ? "mark" : "open");
    }
  }

  function setTwo(on) {
    $("panes").classList.toggle("two", on);
    panes[1].element.hidden = !on;
    $("two").setAttribute("aria-pressed", String(on));
    if (!on) activate(panes[0]);
  }

  function choose(name) {
    tool = name;
    for (const { viewer } of panes) {
      Object.assign(viewer, { tool, handle: -1 });
      viewer.changed();
    }
    for (const each of root.querySelectorAll("[data-tool]")) {
      each.setAttribute("aria-pressed", String(each.dataset.tool === tool));
    }
  }

  function invert() {
    active.viewer.inverted = !active.viewer.inverted;
    $("invert").setAttribute("aria-pressed", String(active.viewer.inverted));
    active.viewer.changed();
  }

  function flip() {
    active.viewer.flip();
    $("flip").setAttribute("aria-pressed", String(active.viewer.flipped));
  }

  function showPresets() {
    const { film } = active.viewer;
    const presets = film?.windows ?? [];
    $("presets").disabled = !presets.length;
    $("presets").replaceChildren(
      option("", words.presets),
      ...presets.map((each, index) => option(String(index), words.presetNames[each.name])),
    );
  }

  function usePreset(index) {
    const { viewer } = active;
    const chosen = viewer.film?.windows[index];
    if (chosen) viewer.setWindow(chosen.low, chosen.high);
    $("presets").value = String(index);
  }

  function nextPreset() {
    const count = active.viewer.film?.windows.length;
    if (count) usePreset((Number($("presets").value || -1) + 1) % count);
  }

  function setOverlay(kind) {
    look.overlay = kind;
    for (const each of $("overlay").children) each.setAttribute("aria-pressed", String(each.dataset.overlay === kind));
    result.repaint();
    others.repaint();
  }

  function setOpacity(value) {
    look.opacity = Math.min(Math.max(value, 0.1), 1);
    $("opacity").value = String(look.opacity);
    for (const { viewer } of panes) {
      viewer.opacity = look.opacity;
      viewer.changed();
    }
    result.repaint();
    others.repaint();
  }

  const actual = () => active.viewer.zoomTo(1 / active.viewer.ratio);
  for (const each of root.querySelectorAll("[data-tool]")) each.addEventListener("click", () => choose(each.dataset.tool));
  $("fit").addEventListener("click", () => active.viewer.fit());
  $("actual").addEventListener("click", actual);
  $("invert").addEventListener("click", invert);
  $("flip").addEventListener("click", flip);
  $("presets").addEventListener("change", () => usePreset(Number($("presets").value)));
  $("clear").addEventListener("click", () => active.viewer.film && active.viewer.clear());
  $("two").addEventListener("click", () => setTwo(panes[1].element.hidden));
  $("opacity").addEventListener("input", () => setOpacity(Number($("opacity").value)));

  // -- keys -------------------------------------------------------------------------------------------
  const withFilm = (act) => () => active.viewer.film && act(active.viewer);
  const KEYS = {
    o: () => $("open-file").click(),
    b: withFilm((viewer) => {
      if (tool === "pan" || tool === "window") choose("mark");
      viewer.canvas.focus();
      viewer.place();
    }),
    n: withFilm((viewer) => viewer.nextHandle()),
    m: () => choose("mark"),
    l: () => choose("outline"),
    h: () => choose("pan"),
    w: () => choose("window"),
    u: () => choose("ruler"),
    i: invert,
    f: flip,
    v: nextPreset,
    2: () => setTwo(panes[1].element.hidden),
    s: () => setOverlay(OVERLAYS[(OVERLAYS.indexOf(look.overlay) + 1) % OVERLAYS.length]),
    "<": () => setOpacity(look.opacity - 0.1),
    ">": () => setOpacity(look.opacity + 0.1),
    r: () => result.explanation && result.reset(),
    0: () => active.viewer.fit(),
    1: actual,
    z: withFilm((viewer) => viewer.square && viewer.fitTo([viewer.square.x0, viewer.square.y0, viewer.square.x1, viewer.square.y1])),
    "+": () => active.viewer.zoom(1.25),
    "=": () => active.viewer.zoom(1.25),
    "-": () => active.viewer.zoom(0.8),
    "[": () => active.viewer.changeWindow(-0.1, 0),
    "]": () => active.viewer.changeWindow(0.1, 0),
    ",": () => active.viewer.changeWindow(0, 0.03),
    ".": () => active.viewer.changeWindow(0, -0.03),
    Delete: withFilm((viewer) => viewer.clear()),
    Backspace: withFilm((viewer) => viewer.clear()),
  };

  function arrow(event) {
    const [x, y] = ARROWS[event.key];
    const { viewer } = active;
    const step = (event.shiftKey ? 10 : 1) * Math.max(1, Math.round(2 / viewer.scale));
    if (!viewer.shape) viewer.pan(-x * 40, -y * 40);
    else if (event.altKey) viewer.stretch(x * step, y * step);
    else viewer.nudge(x * step, y * step);
  }

  function key(event) {
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.key in ARROWS) {
      if (!active.viewer.film || event.target !== active.viewer.canvas) return false;
      arrow(event);
    } else if (Object.hasOwn(KEYS, name)) KEYS[name]();
    else return false;
    return true;
  }

  const folder = commonFolder(app.cases.map((each) => each.name)); // says nothing in a narrow list

  /** The cases of a split as a group of the list; those that the model has not learned from come first. */
  function casesOf(split) {
    const found = app.cases.filter((each) => (SPLITS.includes(each.split) ? each.split : "") === split);
    if (!found.length) return [];
    const options = found.map((each) => option(each.number, each.name.slice(folder.length)));
    if (!split) return options;
    const group = Object.assign(element("optgroup"), { label: words.splitNames[split] });
    group.append(...options);
    return [group];
  }

  // -- start ------------------------------------------------------------------------------------------
  $("panes").append(...panes.map((pane) => pane.element));
  panes[0].element.classList.add("active");
  setTwo(false);
  $("steps").append(...words.steps.map((step) => element("li", "", step)));
  guide("open");
  $("case").append(option("", words.chooseCase), ...SPLITS.flatMap(casesOf));
  $("case-label").hidden = !app.cases.length;
  for (const kind of OVERLAYS) {
    const each = button(words.overlays[kind], () => setOverlay(kind));
    Object.assign(each.dataset, { overlay: kind, testid: `overlay-${kind}` });
    each.title = words.overlayHelp[kind];
    $("overlay").append(each);
  }
  setOverlay("contour");
  showPresets();
  saveMenu($("save"), app, () => ({
    explanation: result.explanation,
    factors: result.factors,
    against: result.against,
    evidence: look.overlay === "needed",
    image: active.viewer.film.id,
    lesion: active.viewer.box,
  }));

  return {
    key,
    keys: words.keyList,
    show: (detail) => detail?.number !== undefined && open(() => openCase(detail.number)),
  };
}

/** The folders that all names begin with. */
function commonFolder([first = "", ...others]) {
  let folder = first.slice(0, first.lastIndexOf("/") + 1);
  while (folder && !others.every((name) => name.startsWith(folder))) {
    folder = folder.slice(0, folder.lastIndexOf("/", folder.length - 2) + 1);
  }
  return folder;
}
