// Annotate: brush, erase and outline a fine annotation, or draw a lesion box, on the cases of the manifest.

import { button, element, option } from "./dom.js";
import { FilmPanel } from "./film_panel.js";
import { Mask } from "./mask.js";
import { answer, loadImage, openCase } from "./server.js";
import { words } from "./words.js";

const TOOLS = ["brush", "erase", "outline", "mark", "pan"];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const STILL = 4; // pixels that a hand may tremble

export function mount(root, app) {
  const said = words.annotate;
  const film = new FilmPanel("annotate-film", said.canvas);
  const { viewer } = film;
  const state = { cases: [], number: -1, mask: null, tool: "brush", radius: 6, points: null, cursor: null, pen: false, restoring: false };
  const panel = element("aside", "annotate-panel");
  panel.setAttribute("aria-label", said.title);
  const note = element("p", "", said.notServed);
  const plain = element("div", "study-plain", "", element("h1", "", said.title), note, element("code", "", said.command));
  const stage = element("div", "study-stage", "", film.element, panel);
  root.append(plain, stage);
  const parts = panelParts();
  viewer.layers.push(drawMask);
  for (const tool of ["brush", "erase"]) viewer.tools[tool] = { cursor: "crosshair", begin: beginStroke };
  viewer.tools.outline = { cursor: "crosshair", begin: beginOutline };
  viewer.addEventListener("box", (event) => {
    if (state.restoring || !event.detail.final || !state.mask) return;
    state.mask.do({ kind: "box", box: viewer.box });
    tell();
  });

  // -- the panel --------------------------------------------------------------------------------------
  function panelParts() {
    const cases = element("select");
    cases.dataset.testid = "annotate-case";
    cases.addEventListener("change", () => open(Number(cases.value)));
    const labelled = (text, input) => {
      const label = element("label", "annotate-field", text);
      label.append(input);
      return label;
    };
    const label = element("select");
    label.dataset.testid = "annotate-label";
    const tools = element("div", "annotate-tools");
    tools.setAttribute("role", "group");
    tools.setAttribute("aria-label", words.tools);
    for (const tool of TOOLS) {
      const made = button(said.tools[tool], () => choose(tool));
      made.dataset.annotateTool = tool;
      made.dataset.testid = `annotate-${tool}`;
      tools.append(made);
    }
    const size = Object.assign(element("input"), { type: "range", min: 1, max: 60, value: state.radius });
    size.dataset.testid = "annotate-size";
    size.addEventListener("input", () => setRadius(Number(size.value)));
    const status = element("p", "annotate-status");
    status.setAttribute("role", "status");
    status.dataset.testid = "annotate-status";
    const acts = {
      undo: button(said.undo, undo), redo: button(said.redo, redo), clear: button(said.clear, clear),
      save: button(said.save, save, "primary"), remove: button(said.remove, remove),
      back: button(said.previous, () => step(-1)), next: button(said.next, () => step(1)),
    };
    for (const [name, made] of Object.entries(acts)) made.dataset.testid = `annotate-${name}`;
    const row = (...buttons) => element("div", "annotate-row", "", ...buttons);
    const labelField = labelled(said.label, label);
    panel.append(
      element("h1", "", said.title), labelled(said.case, cases), row(acts.back, acts.next),
      element("h2", "", said.draw), tools, labelled(said.size, size), row(acts.undo, acts.redo, acts.clear),
      labelField, element("h2", "", said.keep), status, row(acts.save, acts.remove), element("p", "small", said.where),
    );
    return { cases, label, labelField, tools, size, status, acts };
  }

  function tell(text = "") {
    const { mask } = state;
    const entry = state.cases[state.number];
    for (const name of ["save", "undo", "redo", "clear", "remove"]) parts.acts[name].disabled = !mask;
    if (!mask || !entry) return;
    parts.acts.undo.disabled = !mask.acts.length;
    parts.acts.redo.disabled = !mask.undone.length;
    parts.acts.save.disabled = !mask.changed;
    parts.acts.remove.disabled = !entry.annotation;
    parts.status.textContent = text || (mask.changed ? said.unsaved : entry.annotation ? said.saved(entry.annotation) : said.nothing);
    viewer.changed();
  }

  function choose(tool) {
    state.tool = tool;
    viewer.tool = tool;
    closeOutline(false);
    state.pen = false;
    for (const each of parts.tools.children) each.setAttribute("aria-pressed", String(each.dataset.annotateTool === tool));
    viewer.changed();
  }

  function setRadius(radius) {
    state.radius = Math.min(Math.max(radius, 1), 60);
    parts.size.value = String(state.radius);
    viewer.changed();
  }

  // -- cases ----------------------------------------------------------------------------------------
  async function begin() {
    const served = Boolean(app.served?.annotations);
    plain.hidden = served;
    stage.hidden = !served;
    if (!served || state.cases.length) return;
    try {
      state.cases = (await answer("/api/annotations")).cases;
      parts.label.replaceChildren(option("", said.chooseLabel), ...app.run().classes.map((name) => option(name, name)));
      list();
      const first = state.cases.findIndex((each) => !each.annotation);
      await open(Math.max(first, 0));
    } catch (error) {
      app.fail(error);
    }
  }

  function list() {
    parts.cases.replaceChildren(...state.cases.map((each) => option(each.number, `${each.annotation ? "✓ " : ""}${each.name}`)));
    parts.cases.value = String(state.number);
  }

  async function open(number) {
    app.clearError();
    try {
      if (state.mask?.changed) await store();
      const opened = await openCase(number);
      const entry = state.cases[number];
      const mask = new Mask(opened.width, opened.height);
      mask.firstBox = entry.box;
      if (entry.mask) mask.start(await loadImage(`/api/annotations/${number}/mask.png?${Date.now()}`));
      Object.assign(state, { number, mask, points: null, cursor: null, pen: false });
      state.restoring = true;
      viewer.open(opened, entry.box);
      state.restoring = false;
      viewer.tool = state.tool;
      parts.cases.value = String(number);
      parts.labelField.hidden = entry.labelled;
      parts.label.value = entry.labelled ? "" : entry.label;
      choose(state.tool);
      tell();
    } catch (error) {
      parts.cases.value = String(state.number);
      app.fail(error);
    }
  }

  function step(by) {
    const number = state.number + by;
    if (number >= 0 && number < state.cases.length) open(number);
  }

  // -- keeping --------------------------------------------------------------------------------------
  async function store() {
    const { mask, number } = state;
    const entry = state.cases[number];
    const form = new FormData();
    const drewMask = mask.drawsMask || entry.annotation.includes("mask");
    const drewBox = (mask.drawsBox || entry.annotation.includes("box")) && mask.box;
    if (drewMask && !mask.isEmpty) form.append("mask", await mask.toBlob(), "mask.png");
    if (drewBox) form.append("box", mask.box.join(","));
    if (!entry.labelled) form.append("label", parts.label.value);
    const nothing = !form.has("mask") && !form.has("box");
    const method = nothing && entry.annotation ? "DELETE" : "PUT";
    const body = method === "PUT" ? form : undefined;
    state.cases[number] = await answer(`/api/annotations/${number}`, { method, body });
    mask.saved();
    list();
  }

  async function save() {
    app.clearError();
    try {
      closeOutline(true);
      if (state.mask?.changed) await store();
      tell();
    } catch (error) {
      app.fail(error);
    }
  }

  async function remove() {
    app.clearError();
    try {
      state.cases[state.number] = await answer(`/api/annotations/${state.number}`, { method: "DELETE" });
      state.mask.saved(); // nothing is left to keep
      await open(state.number);
      list();
    } catch (error) {
      app.fail(error);
    }
  }

  // -- undo -----------------------------------------------------------------------------------------
  function undo() {
    if (state.points) state.points = null;
    else if (state.mask?.undo()) showBox();
    tell();
  }

  function redo() {
    if (state.mask?.redo()) showBox();
    tell();
  }

  function clear() {
    state.mask?.do({ kind: "clear" });
    tell();
  }

  function showBox() {
    state.restoring = true;
    viewer.setBox(state.mask.box);
    state.restoring = false;
  }

  // -- drawing --------------------------------------------------------------------------------------
  function beginStroke(_, [x, y]) {
    const erase = state.tool === "erase";
    const points = [viewer.toFilm(x, y)];
    const { mask, radius } = state;
    mask.extend(points[0], points[0], radius, erase);
    viewer.changed();
    return {
      move(nowX, nowY) {
        const now = viewer.toFilm(nowX, nowY);
        mask.extend(points.at(-1), now, radius, erase);
        points.push(now);
        viewer.changed();
      },
      end() {
        mask.do({ kind: "stroke", points, radius, erase }, true);
        tell();
      },
    };
  }

  /** A drag draws an outline at once; clicks set corner after corner until it is closed. */
  function beginOutline(_, [x, y]) {
    const corners = state.points ?? [];
    const stroke = [viewer.toFilm(x, y)];
    let dragged = false;
    return {
      move(nowX, nowY) {
        if (!dragged && Math.hypot(nowX - x, nowY - y) < STILL) return;
        dragged = true;
        stroke.push(viewer.toFilm(nowX, nowY));
        state.points = [...corners, ...stroke];
        viewer.changed();
      },
      end() {
        const [firstX, firstY] = corners.length ? viewer.toScreen(...corners[0]) : [Infinity, Infinity];
        const closing = corners.length > 2 && Math.hypot(firstX - x, firstY - y) < 2 * STILL;
        state.points = closing ? corners : [...corners, ...stroke];
        if (closing || (dragged && !corners.length)) closeOutline(true);
        viewer.changed();
      },
    };
  }

  function closeOutline(keep) {
    const { points, mask } = state;
    state.points = null;
    if (keep && points?.length > 2) {
      mask.do({ kind: "outline", points });
      tell();
    }
  }

  function drawMask(context) {
    const { mask } = state;
    if (!mask || !viewer.film) return;
    const [left, top] = viewer.toScreen(0, 0);
    const [right] = viewer.toScreen(1, 0);
    const [, bottom] = viewer.toScreen(0, 1);
    context.save();
    context.translate(left, top);
    context.scale(right - left, bottom - top);
    context.globalAlpha = 0.4;
    context.imageSmoothingEnabled = viewer.scale < 4;
    context.drawImage(mask.canvas, 0, 0);
    context.restore();
    if (state.points) drawCorners(context);
    if (state.cursor) drawCursor(context);
  }

  function drawCorners(context) {
    context.beginPath();
    state.points.forEach((point, place) => {
      const at = viewer.toScreen(...point);
      if (place) context.lineTo(...at);
      else context.moveTo(...at);
    });
    if (state.cursor && state.tool === "outline") context.lineTo(...viewer.toScreen(...state.cursor));
    Object.assign(context, { strokeStyle: "#54e0b8", lineWidth: 2 });
    context.stroke();
  }

  function drawCursor(context) {
    const [x, y] = viewer.toScreen(...state.cursor);
    const reach = ["brush", "erase"].includes(state.tool) ? state.radius * viewer.scale : 5;
    for (const [colour, width] of [["#000000", 3], [state.pen ? "#54e0b8" : "#ffffff", 1.5]]) {
      Object.assign(context, { strokeStyle: colour, lineWidth: width });
      context.beginPath();
      context.arc(x, y, Math.max(reach, 3), 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // -- keys -----------------------------------------------------------------------------------------
  const drawing = () => ["brush", "erase", "outline"].includes(state.tool);

  function moveCursor(event) {
    const [dx, dy] = ARROWS[event.key];
    const length = (event.shiftKey ? 10 : 1) * Math.max(1, Math.round(4 / viewer.scale));
    const from = state.cursor ?? viewer.toFilm(viewer.size[0] / 2, viewer.size[1] / 2);
    const clip = (value, most) => Math.min(Math.max(value, 0), most);
    state.cursor = [clip(from[0] + dx * length, viewer.film.width), clip(from[1] + dy * length, viewer.film.height)];
    if (state.pen) {
      state.mask.do({ kind: "stroke", points: [from, state.cursor], radius: state.radius, erase: state.tool === "erase" });
      tell();
    }
    viewer.changed();
  }

  /** Space: pen down or up; with the outline tool, a corner. */
  function press() {
    state.cursor ??= viewer.toFilm(viewer.size[0] / 2, viewer.size[1] / 2);
    if (state.tool === "outline") state.points = [...(state.points ?? []), state.cursor];
    else {
      state.pen = !state.pen;
      if (state.pen) state.mask.do({ kind: "stroke", points: [state.cursor], radius: state.radius, erase: state.tool === "erase" });
    }
    tell();
  }

  function boxKey(event) {
    const [dx, dy] = ARROWS[event.key];
    const length = (event.shiftKey ? 10 : 1) * Math.max(1, Math.round(2 / viewer.scale));
    if (event.altKey) viewer.stretch(dx * length, dy * length);
    else viewer.nudge(dx * length, dy * length);
  }

  const KEYS = {
    b: () => choose("brush"), e: () => choose("erase"), o: () => choose("outline"), h: () => choose("pan"),
    x: () => {
      choose("mark");
      if (!viewer.box) viewer.place();
    },
    s: () => setRadius(state.radius - 1), l: () => setRadius(state.radius + 1),
    u: undo, r: redo, n: () => step(1), p: () => step(-1), Escape: () => { state.points = null; state.pen = false; tell(); },
  };

  function key(event) {
    if (stage.hidden || !viewer.film || !state.mask) return false;
    const onFilm = event.target === film.canvas;
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (onFilm && name in ARROWS && drawing()) moveCursor(event);
    else if (onFilm && name in ARROWS && state.tool === "mark" && viewer.box) boxKey(event);
    else if (onFilm && event.key === " " && drawing()) press();
    else if (onFilm && name === "Enter") closeOutline(true);
    else if (Object.hasOwn(KEYS, name)) KEYS[name]();
    else return film.key(event);
    return true;
  }

  function shortcut(event) {
    if (!(event.ctrlKey || event.metaKey) || stage.hidden) return;
    const name = event.key.toLowerCase();
    if (name === "z" && event.shiftKey) redo();
    else if (name === "z") undo();
    else if (name === "y") redo();
    else if (name === "s") save();
    else return;
    event.preventDefault();
  }

  const warn = (event) => { if (state.mask?.changed) event.preventDefault(); };
  window.addEventListener("beforeunload", warn);

  return {
    show: () => {
      document.addEventListener("keydown", shortcut);
      begin();
    },
    hide: () => document.removeEventListener("keydown", shortcut),
    key,
    keys: [...said.keyList, ...words.filmKeys],
  };
}
